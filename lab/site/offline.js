// This service worker keeps the files of the site, for a visit without a network. make site fills in the version and
// the names of the files.
const version = "VERSION";
const addresses = FILES.map((name) => new URL(name, location).href);

self.addEventListener("install", (event) => {
  self.skipWaiting();
  event.waitUntil(caches.open(version).then((cache) => cache.addAll(addresses)));
});

self.addEventListener("activate", (event) => event.waitUntil((async () => {
  const old = (await caches.keys()).filter((name) => name.startsWith("podcount-") && name !== version);
  await Promise.all(old.map((name) => caches.delete(name)));
  await self.clients.claim();
})()));

// What is no file of the site is none of this worker's business.
self.addEventListener("fetch", (event) => {
  if (!addresses.includes(event.request.url)) return;
  event.respondWith(fetch(event.request).catch(() => caches.match(event.request)));
});
