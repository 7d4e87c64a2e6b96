"use strict";

// This script stands before those of podcount's page. It starts the playground in a worker, and answers the page's
// requests from there, so that nothing but the files of the site is ever fetched.
{
const fetchFile = window.fetch.bind(window); // fetches a file of the site
const { version, bytes, args } = document.currentScript.dataset;
const loading = document.getElementById("loading");
const isFilm = () => location.hash.startsWith("#film-"); // A film needs no podcount.

// ---- Loading ----

// fetchOwn fetches a file of this version of the site.
async function fetchOwn(name) {
  const answer = await fetchFile(`${name}?${version}`);
  if (!answer.ok) throw new Error(`the server answers ${answer.status} for ${name}`);
  return answer;
}

let loaded = 0; // bytes of both programs

// compile fetches a program, compiles it while it comes, and shows how far that has come.
async function compile(name) {
  const answer = await fetchOwn(`${name}.wasm.gz`);
  const isPacked = !answer.headers.has("Content-Encoding"); // Else the browser unpacks it.
  const count = new TransformStream({
    transform(part, stream) {
      loaded += part.length;
      loading.querySelector("progress").value = loaded / bytes;
      stream.enqueue(part);
    },
  });
  const counted = answer.body.pipeThrough(count);
  const program = isPacked ? counted.pipeThrough(new DecompressionStream("gzip")) : counted;
  return WebAssembly.compileStreaming(new Response(program, { headers: { "Content-Type": "application/wasm" } }));
}

// start starts the playground, and returns a port to it. Its script is a blob, so that it gets the policy of the page,
// and so that the playground can start podcount without a network.
async function start() {
  if (!window.WebAssembly || !window.DecompressionStream) {
    throw new Error("this browser is too old, or WebAssembly is switched off");
  }
  const script = fetchOwn("worker.js").then((answer) => answer.text());
  const [program, podcount, text] = await Promise.all([compile("playground"), compile("podcount"), script]);
  const address = URL.createObjectURL(new Blob([text], { type: "text/javascript" }));
  const worker = new Worker(address);
  worker.onmessage = ({ data }) => fallBack(new Error(`the playground has ended with ${data.exit}`));
  worker.onerror = fallBack;
  const { port1, port2 } = new MessageChannel();
  worker.postMessage({
    program,
    name: "playground",
    args: args.split(" "),
    files: {},
    parentPort: port2,
    extra: { podcount, script: address },
  }, [port2]);
  loading.querySelector("p").textContent = "podcount starts …";
  return port1;
}

// fallBack opens a film, and says why podcount does not run.
function fallBack({ message }) {
  history.replaceState({ failure: message }, "", "#film-lost-event");
  if (document.readyState !== "loading") location.reload(); // Else the page has yet to look at its address.
}

const started = isFilm() ? new Promise(() => {}) : start();
started.catch(fallBack);

addEventListener("DOMContentLoaded", () => {
  if (isFilm()) {
    const { failure } = history.state || {};
    loading.hidden = !failure;
    loading.replaceChildren(`podcount cannot run here: ${failure}. This is a recording of it.`);
    return;
  }
  const patience = setInterval(() => { page.heardAt = Date.now(); }, 1000); // nothing is lost while it loads
  page.on("state", () => {
    if (loading.hidden) return;
    clearInterval(patience);
    loading.hidden = true;
    // After the first visit, the site also opens without a network.
    navigator.serviceWorker?.register("offline.js");
  });
});

// ---- The page's requests ----

// ask sends a request to the playground, and returns its answer as fetch does.
async function ask(path, { method = "GET", signal } = {}) {
  const playground = await started;
  if (signal?.aborted) return Response.error();
  const { port1: port, port2 } = new MessageChannel();
  playground.postMessage({ method, path, port: port2 }, [port2]);
  return new Promise((resolve) => {
    let body;
    const end = () => {
      port.postMessage(null);
      port.close();
    };
    const stream = new ReadableStream({ start: (controller) => { body = controller; }, cancel: end });
    signal?.addEventListener("abort", end);
    port.onmessage = ({ data }) => {
      if (typeof data === "number") resolve(new Response(stream, { status: data }));
      else if (data) body.enqueue(data);
      else body.close();
    };
  });
}

window.fetch = (path, options) => (/^(playground|events)\b/.test(path) ? ask(path, options) : fetchFile(path, options));

// EventSource reads a stream of the playground. It connects again a second after the stream has ended.
window.EventSource = class extends EventTarget {
  static CLOSED = 2;
  readyState = 0;
  stop = new AbortController();

  constructor(path) {
    super();
    this.read(path);
  }

  async read(path) {
    const answer = await ask(path, { signal: this.stop.signal });
    if (this.readyState === 2) return;
    this.readyState = answer.ok ? 1 : 2;
    if (answer.ok) {
      this.dispatchEvent(new Event("open"));
      await this.readMessages(answer.body.pipeThrough(new TextDecoderStream()).getReader());
      if (this.readyState === 2) return;
      this.readyState = 0;
      setTimeout(() => this.readyState === 0 && this.read(path), 1000);
    }
    this.dispatchEvent(new Event("error"));
  }

  async readMessages(reader) {
    for (let text = "", part; !(part = await reader.read()).done;) {
      const messages = (text + part.value).split("\n\n");
      text = messages.pop();
      for (const message of messages) {
        const [, type, data] = message.match(/^event: (.*)\ndata: (.*)$/) || [];
        if (type) this.dispatchEvent(new MessageEvent(type, { data }));
      }
    }
  }

  close() {
    this.readyState = 2;
    this.stop.abort();
  }
};
}
