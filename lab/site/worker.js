// This script runs a program in a worker, as an operating system runs a process. It stands below Go's wasm_exec.js. The
// first message says what to run; the messages "pause" and "resume" are like SIGSTOP and SIGCONT.

let isPaused = false;
const held = []; // what waits for the end of a pause

// guard returns a handler that waits while the program is paused.
const guard = (handle) => (...args) => (isPaused ? held.push(() => handle(...args)) : handle(...args));

const setTimer = self.setTimeout.bind(self);
self.setTimeout = (handle, delay) => setTimer(guard(handle), delay);

self.onmessage = ({ data }) => {
  if (data === "pause") isPaused = true;
  else if (data === "resume") resume();
  else run(data);
};

function resume() {
  isPaused = false;
  for (const handle of held.splice(0)) handle();
}

// run runs a program. parentPort leads to whoever has started it, and keeps what comes before the program listens.
async function run({ program, name, args, files, parentPort, extra }) {
  Object.assign(self, { parentPort }, extra);
  serveFiles(files);
  const go = new Go();
  const makeHandler = go._makeFuncWrapper.bind(go);
  go._makeFuncWrapper = (id) => guard(makeHandler(id)); // Only handlers and timers wake a program.
  go.argv = [name, ...args];
  go.exit = (code) => {
    isPaused = true; // Timers of a program that has ended must not wake it.
    self.postMessage({ exit: code });
  };
  go.run(await WebAssembly.instantiate(program, go.importObject));
}

// An error in a promise is one of the worker, as an error elsewhere is, so that whoever has started it hears of it.
self.addEventListener("unhandledrejection", ({ reason }) => setTimer(() => { throw reason; }));

// startWorker is how the playground starts a podcount. The page has made the address of this script.
self.startWorker = () => new Worker(self.script);

// serveFiles lets the program read files that exist only here. Their texts are given by their names.
function serveFiles(files) {
  const open = [null, null, null]; // the first numbers are those of the standard streams
  const answer = (bytes, call, callback) => {
    if (bytes) callback(null, call(bytes));
    else callback(Object.assign(new Error("no such file"), { code: "ENOENT" }));
  };
  const bytesOf = (name) => name in files && new TextEncoder().encode(files[name]);
  const describe = ({ length }) => ({
    dev: 0, ino: 0, mode: 0o100600, nlink: 1, uid: 0, gid: 0, rdev: 0, size: length, blksize: 4096, blocks: 1,
    atimeMs: 0, mtimeMs: 0, ctimeMs: 0, isDirectory: () => false,
  });
  Object.assign(globalThis.fs, {
    open: (name, flags, mode, callback) => answer(bytesOf(name), (bytes) => open.push(bytes) - 1, callback),
    stat: (name, callback) => answer(bytesOf(name), describe, callback),
    fstat: (file, callback) => answer(open[file], describe, callback),
    close: (file, callback) => answer(open[file], () => { open[file] = null; }, callback),
    read: (file, buffer, offset, length, position, callback) => answer(open[file], (bytes) => {
      const part = bytes.subarray(bytes.position ?? 0, (bytes.position ?? 0) + length);
      bytes.position = (bytes.position ?? 0) + part.length;
      buffer.set(part, offset);
      return part.length;
    }, callback),
  });
}
