"""A peer of the trial: for pods and nodes each, a list and a watch from its version, and after any exception again.

That is the way to recover which the documentation of Watch.stream names:
https://github.com/kubernetes-client/python/blob/v22.6.0/kubernetes/base/watch/watch.py
A loop around it, with try and except, is in
https://github.com/kubernetes-client/python/blob/master/examples/watch/watch_recovery.py
The request timeout is that of the README, and is recommended by
https://github.com/kubernetes-client/python/blob/v22.6.0/examples/watch/timeout-settings.md
The patch is that of https://github.com/kubernetes-client/python/blob/v22.6.0/examples/node_labels.py
"""

import os
import threading
import time
import traceback

from kubernetes import client, config, watch

LABEL = os.environ["TRIAL_LABEL"]
CONTROL_PLANE = "node-role.kubernetes.io/control-plane"

config.load_kube_config()
v1 = client.CoreV1Api()
lock = threading.Lock()  # guards caches
caches = {}  # objects by uid, for "pods" and "nodes", each once it was listed


def follow(kind, list_objects, **selector):
    while True:
        try:
            listed = list_objects(**selector)
            with lock:
                caches[kind] = {item.metadata.uid: item for item in listed.items}
                set_labels()
            follow_changes(kind, list_objects, listed.metadata.resource_version, selector)
        except Exception:
            traceback.print_exc()
            time.sleep(1)  # or else a server that is away would be asked without a pause


def follow_changes(kind, list_objects, version, selector):
    changes = watch.Watch().stream(list_objects, resource_version=version, _request_timeout=60, **selector)
    for event in changes:
        item = event["object"]
        with lock:
            if event["type"] == "DELETED":
                caches[kind].pop(item.metadata.uid, None)
            else:
                caches[kind][item.metadata.uid] = item
            set_labels()


def set_labels():
    if len(caches) < 2:
        return  # pods or nodes are not listed yet
    want = str(len(caches["pods"]))
    for node in caches["nodes"].values():
        if node.metadata.labels.get(LABEL) != want:
            v1.patch_node(node.metadata.name, {"metadata": {"labels": {LABEL: want}}})


threading.Thread(target=follow, args=("pods", v1.list_pod_for_all_namespaces)).start()
follow("nodes", v1.list_node, label_selector=CONTROL_PLANE)
