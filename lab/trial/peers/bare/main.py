# A peer of the trial: the loop over a watch that the README of Python's client has, and
# https://github.com/kubernetes-client/python/blob/v22.6.0/examples/watch/pod_namespace_watch.py
# Their timeouts are left out, because they end such a loop.
import os

from kubernetes import client, config, watch

config.load_kube_config()
v1 = client.CoreV1Api()
pods = set()
for event in watch.Watch().stream(v1.list_pod_for_all_namespaces):
    change = pods.discard if event["type"] == "DELETED" else pods.add
    change(event["object"].metadata.uid)
    body = {"metadata": {"labels": {os.environ["TRIAL_LABEL"]: str(len(pods))}}}
    for node in v1.list_node(label_selector="node-role.kubernetes.io/control-plane").items:
        v1.patch_node(node.metadata.name, body)
