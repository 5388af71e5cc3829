"""A file of a few lines in each format that is read, of our own making."""

from __future__ import annotations

STG = "2\n0 0 0\n1 3 1 0\n2 4.5 1 0\n3 0 2 1 2\n# A comment\n#  and more\n"
STG_COSTS = "2\n0 2 0\n1 3 1\n  0 7\n"
FJSP = """{"instance": "tiny", "operations": [{"operation":0,"option":0,"machine":0,"duration":3},
 {"operation":0,"option":1,"machine":1,"duration":5}, {"operation":1,"option":0,"machine":1,"duration":2},
 {"operation":1,"option":1,"machine":1,"duration":4}], "precedences": [{"before":0,"after":1,"job":3}]}"""
FJS = "2 2\n2 2 1 3 2 5 1 2 2\n1 1 1 7\n"
GXL = """<?xml version="1.0" encoding="UTF-8"?><gxl><graph id="g" edgemode="directed">
<attr name="Number of processors"><int>2</int></attr><attr name="Total schedule length"><int>6</int></attr>
<attr name="Expanded states"><int>99</int></attr>
<node id="a"><attr name="Weight"><int>2</int></attr>
<attr name="Start time"><int>0</int></attr><attr name="Processor"><int>0</int></attr></node>
<node id="b"><attr name="Weight"><int>3</int></attr>
<attr name="Start time"><int>3</int></attr><attr name="Processor"><int>1</int></attr></node>
<edge from="a" to="b"><attr name="Weight"><int>1</int></attr></edge></graph></gxl>"""
DOT = 'digraph "g" { a [Weight=2, Start=0, Processor=0]; b [Weight=3, Start=3, Processor=1]; a -> b [Weight=1]; }'
DAGBENCH = """{"name": "tiny", "task_graph": {"tasks": [{"name": "a", "cost": 2}, {"name": "b", "cost": 4}],
 "dependencies": [{"source": "a", "target": "b", "size": 3}]}, "network": {"nodes": [{"name": "x", "speed": 1}, {"name": "y", "speed": 2}],
 "edges": [{"source": "x", "target": "y", "speed": 4}, {"source": "x", "target": "x", "speed": null}]}}"""
WFFORMAT = """{"name": "tiny", "schemaVersion": "1.5", "workflow": {"specification": {"tasks": [
 {"name": "a", "id": "a_1", "parents": [], "children": ["b_2"], "inputFiles": ["in"], "outputFiles": ["mid"]},
 {"name": "b", "id": "b_2", "parents": ["a_1"], "children": [], "inputFiles": ["mid", "in"], "outputFiles": []}],
 "files": [{"id": "in", "sizeInBytes": 5}, {"id": "mid", "sizeInBytes": 30}]}, "execution": {"makespanInSeconds": 9, "executedAt": "now",
 "tasks": [{"id": "a_1", "runtimeInSeconds": 4, "machines": ["m"], "coreCount": 2, "command": {"program": "sort"}},
 {"id": "b_2", "runtimeInSeconds": 6, "avgCPU": 80.5, "memoryInBytes": 7}],
 "machines": [{"nodeName": "m", "cpu": {"coreCount": 8, "speedInMHz": 1000}}, {"nodeName": "n", "cpu": {"speedInMHz": 2000}}]}}}"""
DNN = """{"maxSizePerFPGA": 8, "maxFPGAs": 2, "maxCPUs": 1, "nodes": [
 {"id": 0, "supportedOnFpga": true, "cpuLatency": 10, "fpgaLatency": 1, "isBackwardNode": false, "colorClass": 5, "size": 4, "name": "w"},
 {"id": 7, "supportedOnFpga": 0, "cpuLatency": 2, "fpgaLatency": 0, "isBackwardNode": true, "size": 3}],
 "edges": [{"sourceId": 0, "destId": 7, "cost": 0.5}, {"sourceId": 0, "destId": 7, "cost": 0.25}]}"""
MOIRAI = """{"source": "us", "devices": [{"id": 0, "memory": 9}, {"id": 1, "memory": 8}], "tasks": [{"id": 3, "time": [1, 2], "memory": 4},
 {"id": 4, "time": [3, null], "memory": 5}], "edges": [{"src": 3, "dst": 4, "comm_time": [[0, 6], [7, 0]]}]}"""
SPLIT = '{"fpgas": [{"load": -1, "nodes": []}, {"load": -1, "nodes": [0]}], "maxLoad": -1}'

FILES = {
    "stg": (STG, ".stg", {"processors": 2}),
    "stg with costs": (STG_COSTS, ".stg", {"processors": 2}),
    "fjsp": (FJSP, ".json", {}),
    "gxl": (GXL, ".gxl", {"processors": 2}),
    "dagbench": (DAGBENCH, ".json", {}),
    "wfformat": (WFFORMAT, ".json", {"bandwidth": 10.0}),
    "dnn-partitioning": (DNN, ".json", {}),
    "moirai": (MOIRAI, ".json", {}),
    "fjs": (FJS, ".fjs", {}),
    "dot": (DOT, ".dot", {"processors": 2}),
}
NEEDS = {"fjs": "fjsplib", "dot": "pydot"}
