"use strict";

// The documentation page: a token and a namespace in, Swagger UI out. Both are kept in this tab's session storage;
// the token is only ever sent to the gateway this page came from.
(() => {
  const TOKEN = "tooldock.token";
  const NAMESPACE = "tooldock.namespace";
  const at = (id) => document.getElementById(id);
  const store = window.sessionStorage;

  class Refused extends Error {}

  async function get(path, token) {
    const headers = token ? { Authorization: `Bearer ${token}` } : {};
    let response;
    try {
      response = await fetch(path, { headers, cache: "no-store" });
    } catch {
      throw new Error("The gateway does not answer. Is it still running?");
    }
    const body = await response.json().catch(() => ({}));
    if (response.status === 401) {
      throw new Refused(token ? "This token is not accepted." : "This gateway needs a token.");
    }
    if (!response.ok) {
      throw new Error(body.error?.message ?? `The gateway answered with status ${response.status}.`);
    }
    return body;
  }

  function say(text) {
    at("notice").textContent = text;
    at("notice").hidden = !text;
  }

  function showDoor(problem) {
    store.removeItem(TOKEN);
    at("bar-form").hidden = true;
    at("tools").replaceChildren();
    say("");
    at("door").hidden = false;
    at("problem").textContent = problem;
    at("wanted").value = wantedNamespace() ?? "";
    at("token").focus();
  }

  function wantedNamespace() {
    return new URLSearchParams(location.search).get("namespace") ?? store.getItem(NAMESPACE);
  }

  async function enter(token) {
    const served = await get("/namespaces", token);
    store.setItem(TOKEN, token);
    at("door").hidden = true;
    const names = served.map((one) => one.name);
    if (!names.length) {
      at("bar-form").hidden = true;
      say("No namespace is being served yet. Put a folder with a tool into the tools directory and load this page again.");
      return;
    }
    at("namespace").replaceChildren(...names.map((name) => new Option(name, name)));
    at("bar-form").hidden = false;
    const wanted = wantedNamespace();
    if (wanted && !names.includes(wanted)) {
      say(`There is no namespace “${wanted}”. Choose one above.`);
      at("namespace").selectedIndex = -1;
      return;
    }
    at("namespace").value = wanted || names[0];
    await show(at("namespace").value);
  }

  async function show(namespace) {
    const token = store.getItem(TOKEN) ?? "";
    store.setItem(NAMESPACE, namespace);
    history.replaceState(null, "", `/docs?namespace=${encodeURIComponent(namespace)}`);
    document.title = `${namespace} · ToolDock`;
    say("");
    const spec = await get(`/ns/${encodeURIComponent(namespace)}/openapi.json`, token);
    // This page is where the gateway is, whatever name it believes it has; and the token is known already.
    spec.servers = [{ url: `${location.origin}/ns/${encodeURIComponent(namespace)}` }];
    delete spec.security;
    delete spec.components.securitySchemes;
    const empty = Object.keys(spec.paths).length === 0;
    if (empty) say("This namespace has no tools.");
    window.SwaggerUIBundle({
      spec,
      domNode: at("tools"),
      presets: [window.SwaggerUIBundle.presets.apis],
      layout: "BaseLayout",
      defaultModelsExpandDepth: -1,
      docExpansion: "list",
      tryItOutEnabled: true,
      validatorUrl: null,
      requestInterceptor: (request) => {
        if (token && new URL(request.url, location.href).origin === location.origin) {
          request.headers.Authorization = `Bearer ${token}`;
        }
        return request;
      },
    });
  }

  function fail(error) {
    if (error instanceof Refused) showDoor(error.message);
    else if (at("door").hidden) say(error.message);
    else at("problem").textContent = error.message;
  }

  const dark = window.matchMedia("(prefers-color-scheme: dark)");
  const paint = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
  dark.addEventListener("change", paint);
  paint();

  at("door-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const wanted = at("wanted").value.trim();
    if (wanted) store.setItem(NAMESPACE, wanted);
    else store.removeItem(NAMESPACE);
    history.replaceState(null, "", "/docs");
    at("problem").textContent = "";
    enter(at("token").value.trim()).then(() => { at("token").value = ""; }, fail);
  });
  at("namespace").addEventListener("change", (event) => show(event.target.value).catch(fail));
  at("forget").addEventListener("click", () => showDoor(""));

  if (store.getItem(TOKEN) === null) showDoor("");
  else enter(store.getItem(TOKEN)).catch(fail);
})();
