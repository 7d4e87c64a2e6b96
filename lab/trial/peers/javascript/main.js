// A peer of the trial: two informers, restarted 5 s after an error, as in
// https://github.com/kubernetes-client/javascript/blob/2.0.0/examples/typescript/informer/informer.ts
// and informer-with-label-selector.ts beside it. The patch is made as in
// https://github.com/kubernetes-client/javascript/blob/2.0.0/examples/typescript/patch/patch-example.ts
import * as k8s from '@kubernetes/client-node';

const label = process.env.TRIAL_LABEL;
const labelSelector = 'node-role.kubernetes.io/control-plane';

const kc = new k8s.KubeConfig();
kc.loadFromDefault();
const api = kc.makeApiClient(k8s.CoreV1Api);

const pods = k8s.makeInformer(kc, '/api/v1/pods', () => api.listPodForAllNamespaces());
const nodes = k8s.makeInformer(kc, '/api/v1/nodes', () => api.listNode({ labelSelector }), labelSelector);

for (const informer of [pods, nodes]) {
    informer.on('add', reconcileSoon);
    informer.on('update', reconcileSoon);
    informer.on('delete', reconcileSoon);
    informer.on('error', (err) => {
        console.error(err);
        setTimeout(() => informer.start(), 5000);
    });
}

let waiting = false;
let reconciling = false;

// An informer calls its handlers while it fills its cache. So this waits until that is done.
function reconcileSoon() {
    if (!waiting) {
        waiting = true;
        setImmediate(reconcile);
    }
}

async function reconcile() {
    if (reconciling) {
        return;
    }
    reconciling = true;
    while (waiting) {
        waiting = false;
        await setLabels();
    }
    reconciling = false;
}

// The examples do not say when a write is tried again, so that is as late as for an informer.
async function setLabels() {
    try {
        for (const node of nodes.list()) {
            const want = String(pods.list().length);
            if (node.metadata.labels[label] !== want) {
                await api.patchNode(
                    { name: node.metadata.name, body: { metadata: { labels: { [label]: want } } } },
                    k8s.setHeaderOptions('Content-Type', k8s.PatchStrategy.MergePatch),
                );
            }
        }
    } catch (err) {
        console.error(err);
        setTimeout(reconcileSoon, 5000);
    }
}

await pods.start();
await nodes.start();
