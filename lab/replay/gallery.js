// This is the script of a page that is live, and plays the films beside it, too: see Insert in replay.go.

// ---- Films ----

const filmPrefix = "#film-";
const isFilm = (url) => new URL(url).hash.startsWith(filmPrefix);

async function fetchFilm(name) {
  const answer = await fetch(`films/${name}.json`);
  if (!answer.ok) throw new Error(`films/${name}.json: HTTP ${answer.status}`);
  return answer.json();
}

// filmLinks is a line with links to all films but the one that is shown. Those on the live page open another tab, so
// that the cluster in this one stays.
function filmLinks(films, ...more) {
  const [label, target] = isFilm(location.href) ? ["Films: ", "_self"] : ["Films, in another tab: ", "_blank"];
  const links = films.map(({ name, title }) => (filmPrefix + name === location.hash ? el("b", {}, title)
    : el("a", { href: filmPrefix + name, target }, title)));
  const items = [...links, ...more].flatMap((link) => [" · ", link]);
  return el("p", { class: "films" }, label, ...items.slice(1));
}

// showGallery adds links to the films to the live page, if there are films.
async function showGallery() {
  const films = await fetchFilm("films").catch(() => []);
  if (films.length > 0) section.querySelector("h2").after(filmLinks(films));
}

async function playFilm(name) {
  preventLive("A film");
  const place = el("div", { role: "status" }, el("p", { class: "lead" }, "The film is being loaded."));
  section.querySelector("h2").after(place);
  const live = el("a", { href: "#machine" }, "podcount, live");
  let films = [];
  let about;
  try {
    films = await fetchFilm("films");
    const film = films.find((other) => other.name === name);
    if (!film) throw new Error(`there is no film ${name}`);
    startReplay(await fetchFilm(name));
    section.querySelector("h2").textContent = `Film: ${film.title}`;
    document.title = `${film.title} · podcount`;
    about = film.about;
  } catch (error) {
    about = `This film cannot be shown: ${error.message}.`;
  }
  place.replaceChildren(el("p", { class: "about" }, about), filmLinks(films, live));
}

// playFilms plays the film that the address names, and keeps the page from becoming live. If the address names none,
// it adds links to the films.
function playFilms() {
  // A page is either live or a film for as long as it lasts.
  addEventListener("hashchange", ({ oldURL, newURL }) => {
    if (isFilm(oldURL) || isFilm(newURL)) location.reload();
  });
  if (isFilm(location.href)) playFilm(location.hash.slice(filmPrefix.length));
  else showGallery();
}
