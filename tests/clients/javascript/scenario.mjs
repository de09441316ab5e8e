// The scenario of ../README.md with the official JavaScript client.
import assert from 'node:assert/strict';
import { execSync } from 'node:child_process';
import { PassThrough } from 'node:stream';
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
      containers: [{ name: 'main', image, command: ['sh', '-c', `httpd -p 8080 -h /www; echo hello from ${namespace}; exec sleep 1000`] }],
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
  const put = async (fieldManager, color, options = {}) => {
    const settings = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { color } };
    const changed = await patchAs(k8s.PatchStrategy.ServerSideApply, settings, { fieldManager, ...options });
    assert.equal(changed.data.color, color);
  };
  await put('first', 'black', { force: true });
  await assert.rejects(put('second', 'grey'), (error) => {
    assert.equal(error.code, 409, `a conflicting apply was answered with ${error}`);
    const status = JSON.parse(error.body);
    assert.equal(status.reason, 'Conflict');
    assert.equal(status.message, 'Apply failed with 1 conflict: conflict with "first": .data.color');
    assert.equal(status.details.causes[0].reason, 'FieldManagerConflict');
    return true;
  }, 'a conflicting apply was accepted');
  await put('second', 'grey', { force: true });
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

// Rejects when the promise takes longer than ten seconds.
function soon(promise, what) {
  const late = sleep(10_000, undefined, { ref: false }).then(() => { throw new Error(`${what} took more than ten seconds`); });
  return Promise.race([promise, late]);
}

// A stream to be written to, and what has been written until now.
function collector() {
  const stream = new PassThrough();
  const written = { stream, text: '' };
  stream.on('data', (data) => { written.text += data; });
  return written;
}

async function run(command, stdin) {
  const [stdout, stderr] = [collector(), collector()];
  const ended = new Promise((resolve, reject) => {
    new k8s.Exec(config)
      .exec(namespace, 'hello', 'main', command, stdout.stream, stderr.stream, stdin, false, resolve)
      .catch((event) => reject(new Error(`exec: ${event.message ?? event}`)));
  });
  const status = await soon(ended, command.join(' '));
  await soon(Promise.all([stdout.stream, stderr.stream].map((s) => s.readableEnded || new Promise((end) => s.on('end', end)))), 'the end of the output');
  return { stdout: stdout.text, stderr: stderr.text, status };
}

async function execute() {
  const failed = await run(['sh', '-c', 'echo to stdout; echo to stderr >&2; exit 3'], null);
  assert.deepEqual([failed.stdout, failed.stderr], ['to stdout\n', 'to stderr\n']);
  assert.equal(failed.status.reason, 'NonZeroExitCode', JSON.stringify(failed.status));
  assert.deepEqual(failed.status.details.causes, [{ reason: 'ExitCode', message: '3' }]);
  const stdin = new PassThrough();
  stdin.end('line one\nline two\n');
  const echoed = await run(['cat'], stdin);
  assert.deepEqual([echoed.stdout, echoed.stderr], ['line one\nline two\n', '']);
  assert.equal(echoed.status.status, 'Success', JSON.stringify(echoed.status));
}

async function forward() {
  const [output, problems, input] = [collector(), collector(), new PassThrough()];
  const socket = await new k8s.PortForward(config)
    .portForward(namespace, 'hello', [8080], output.stream, problems.stream, input)
    .catch((event) => { throw new Error(`port-forward: ${event.message ?? event}`); });
  const closed = new Promise((resolve) => socket.addEventListener('close', resolve));
  input.write('GET /index.html HTTP/1.0\r\n\r\n');
  await soon(closed, 'the answer');
  assert.equal(problems.text, '');
  assert.match(output.text, /Coracle carries you across\./);
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
  ['applied, refused a conflict, applied by force', apply],
  ['watched through a restart', restart],
  ['read the log', logs],
  ['executed commands in the pod over WebSocket', execute],
  ['forwarded a port over WebSocket', forward],
  ['deleted', remove],
]) {
  try {
    await step();
  } catch (error) {
    console.error(`not ${done}: ${error.stack ?? error}`);
    process.exit(1);
  }
  console.log(done);
}
// The informers are still watching.
process.exit(0);
