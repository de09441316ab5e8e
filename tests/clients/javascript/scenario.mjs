// The scenario of ../README.md with the official JavaScript client.
import { execSync } from 'node:child_process';
import { setTimeout as sleep } from 'node:timers/promises';
import * as k8s from '@kubernetes/client-node';

const { NAMESPACE: namespace, IMAGE: image, RESTART: restartCommand } = process.env;
const config = new k8s.KubeConfig();
config.loadFromDefault();
const core = config.makeApiClient(k8s.CoreV1Api);

async function create() {
  await core.createNamespace({ body: { metadata: { name: namespace } } });
  await core.createNamespacedConfigMap({ namespace, body: { metadata: { name: 'settings' }, data: { color: 'red' } } });
  const body = {
    metadata: { name: 'hello' },
    spec: {
      terminationGracePeriodSeconds: 1,
      containers: [{ name: 'main', image, command: ['sh', '-c', `echo hello from ${namespace}; exec sleep 1000`] }],
    },
  };
  for (let attempt = 0; ; attempt += 1) {
    try {
      await core.createNamespacedPod({ namespace, body });
      break;
    } catch (error) {
      // The ServiceAccount is made by a controller a moment after the namespace.
      if (error.code !== 403 || attempt === 200) throw error;
      await sleep(50);
    }
  }
  await new Promise((resolve, reject) => {
    const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/pods`, () => core.listNamespacedPod({ namespace }));
    const timer = setTimeout(() => reject(new Error('the pod did not become Ready')), 60_000);
    const look = (pod) => {
      if (pod.status?.conditions?.some((c) => c.type === 'Ready' && c.status === 'True')) {
        clearTimeout(timer);
        resolve();
      }
    };
    informer.on('add', look);
    informer.on('update', look);
    informer.on('error', reject);
    informer.start();
  });
}

function patchAs(type, body, options = {}) {
  return core.patchNamespacedConfigMap({ name: 'settings', namespace, body, ...options }, k8s.setHeaderOptions('Content-Type', type));
}

async function patch() {
  for (const [type, body, color] of [
    [k8s.PatchStrategy.MergePatch, { data: { color: 'green' } }, 'green'],
    [k8s.PatchStrategy.StrategicMergePatch, { data: { color: 'blue' } }, 'blue'],
    [k8s.PatchStrategy.JsonPatch, [{ op: 'replace', path: '/data/color', value: 'white' }], 'white'],
  ]) {
    const changed = await patchAs(type, body);
    if (changed.data.color !== color) throw new Error(`${type} gave ${JSON.stringify(changed.data)}`);
  }
}

async function apply() {
  const settings = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { color: 'black' } };
  try {
    await patchAs(k8s.PatchStrategy.ServerSideApply, settings, { fieldManager: 'javascript', force: true });
  } catch (error) {
    if (error.code !== 415) throw error;
    console.log('server-side apply is not served yet');
    await patchAs(k8s.PatchStrategy.MergePatch, { data: { color: 'black' } });
  }
}

async function restart() {
  const list = () => core.listNamespacedConfigMap({ namespace });
  const informer = k8s.makeInformer(config, `/api/v1/namespaces/${namespace}/configmaps`, list);
  let seen = false;
  const look = (settings) => { seen ||= settings.data?.color === 'gold'; };
  informer.on('add', look);
  informer.on('update', look);
  // The informer's documentation: start it again when it reports an error.
  informer.on('error', () => setTimeout(() => informer.start().catch(() => {}), 100));
  await informer.start();
  execSync(restartCommand, { shell: '/bin/bash', stdio: 'ignore' });
  await patchAs(k8s.PatchStrategy.MergePatch, { data: { color: 'gold' } });
  for (let i = 0; i < 600 && !seen; i += 1) await sleep(100);
  if (!seen) throw new Error('gold did not come through the watch');
}

async function logs() {
  const text = await core.readNamespacedPodLog({ name: 'hello', namespace });
  if (!text.includes(`hello from ${namespace}`)) throw new Error(`the log says ${text}`);
}

async function remove() {
  await core.deleteNamespacedPod({ name: 'hello', namespace });
  for (let i = 0; ; i += 1) {
    try {
      await core.readNamespacedPod({ name: 'hello', namespace });
    } catch (error) {
      if (error.code !== 404) throw error;
      break;
    }
    if (i === 600) throw new Error('the pod did not go');
    await sleep(100);
  }
  await core.deleteNamespace({ name: namespace });
}

for (const [done, step] of [
  ['created, and Ready', create],
  ['patched in three ways', patch],
  ['applied', apply],
  ['watched through a restart', restart],
  ['read the log', logs],
  ['deleted', remove],
]) {
  await step();
  console.log(done);
}
// The informers are still watching.
process.exit(0);
