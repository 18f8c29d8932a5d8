import { byId, element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";
import { formatTime } from "./format.js";

const STATES = new Map([
  ["disabled", "Off"],
  ["idle", "Idle"],
  ["starting", "Starting"],
  ["ready", "Ready"],
  ["failed", "Failed"],
]);
/** States of runs whose colours fit */
const COLOURS = new Map([["starting", "running"], ["ready", "completed"], ["failed", "failed"]]);
/** Milliseconds between looks at servers that are starting, and how many such looks there are */
const LOOK_MS = 1000;
const MAX_LOOKS = 60;

/**
 * @typedef {{
 *   name: string,
 *   transport: string,
 *   state: string,
 *   reason: string | null,
 *   era: string | null,
 *   protocol_version: string | null,
 *   server: { name: string, version: string } | null,
 *   sign_in: { state: string, issuer: string | null, scopes: readonly string[], expires_at: string | null, renewed: boolean },
 *   instructions: string | null,
 *   tools: readonly { name: string, tool: string, description: string }[],
 *   changes: readonly { tool: string, state: string, digest: string, difference: string }[],
 *   last_error: { code: string, message: string, at: string } | null,
 *   rights: string,
 *   since: string | null,
 *   log_tail: string,
 * }} Server
 */

/**
 * The MCP servers of the configuration: state, tools, last error and log; to turn them off and on and to start them anew. Words of a server
 * are somebody else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createMcpView({ session }) {
  const lead = byId("mcp-lead", HTMLElement);
  const list = byId("mcp-list", HTMLElement);
  const note = byId("mcp-note", HTMLElement);
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let looks = 0;

  async function load() {
    clearTimeout(timer);
    try {
      /** @type {readonly Server[]} */
      const servers = (await session.json("v1/mcp-servers")).data;
      const ready = servers.filter(({ state }) => state === "ready").length;
      const on = servers.filter(({ state }) => state !== "disabled").length;
      lead.textContent = servers.length === 0
        ? "There is no server. Add one: postern mcp add."
        : `${on} of ${servers.length} are on, ${ready} with a session, which the first call opens. What is off says what would turn it on.`;
      const isOpen = new Set([...list.querySelectorAll("details[open]")].map(({ id }) => id));
      const focused = document.activeElement?.id ?? "";
      list.replaceChildren(...servers.map((server) => element("li", {}, toDetails(server, isOpen))));
      list.hidden = servers.length === 0;
      if (focused.startsWith("mcp-summary-")) document.getElementById(focused)?.focus();
      if (servers.some(({ state }) => state === "starting") && looks++ < MAX_LOOKS) {
        timer = setTimeout(() => {
          if (!byId("mcp", HTMLElement).hidden) void load();
        }, LOOK_MS);
      } else looks = 0;
    } catch (error) {
      lead.textContent = `The servers cannot be shown: ${messageOf(error)}`;
    }
  }

  /**
   * Does a change, says what came of it, and shows the servers as they are now.
   * @param {string} label
   * @param {string} path
   * @param {unknown} [body]
   */
  async function change(label, path, body) {
    note.textContent = `${label} ...`;
    try {
      /** @type {Server} */
      const server = await (await session.request(path, { method: "POST", ...(body === undefined ? {} : { body }) }))
        .json();
      const failed = server.state === "failed"
        ? `: ${exactLine(server.last_error?.message ?? "it failed")}`
        : ": done.";
      note.textContent = label + failed;
    } catch (error) {
      note.textContent = `${label}: ${messageOf(error)}`;
    }
    await load();
    byId("mcp-title", HTMLElement).focus();
  }

  /**
   * @param {Server} server
   * @param {ReadonlySet<string>} isOpen
   */
  function toDetails(server, isOpen) {
    const { name, state, reason, server: self, last_error: failed } = server;
    const isOn = state !== "disabled";
    const why = reason ?? (state === "failed" ? failed?.message ?? "" : "");
    const details = element(
      "details",
      { id: `mcp-${name}`, class: "tool-info" },
      element(
        "summary",
        { id: `mcp-summary-${name}` },
        element("span", { class: "switch", "data-on": String(isOn && state !== "failed"), "aria-hidden": "true" }),
        element("span", { class: "tool-name" }, name),
        element("span", { class: "badge", "data-run": COLOURS.get(state) ?? "" }, STATES.get(state) ?? state),
        self === null ? "" : element("span", { class: "tool-description" }, exactLine(`${self.name} ${self.version}`)),
        why === "" ? "" : element("span", { class: "tool-why" }, exactLine(why)),
      ),
      element("div", { class: "tool-body" }, ...toFacts(server), toButtons(server)),
    );
    details.open = isOpen.has(details.id);
    return details;
  }

  /** @param {Server} server */
  function toButtons({ name, state, changes }) {
    const place = element("div", { class: "ask-buttons" });
    const path = `v1/mcp-servers/${encodeURIComponent(name)}`;
    /** @type {(label: string, command: string) => HTMLElement} */
    const button = (label, command) => {
      const made = element("button", { type: "button", "aria-label": `${label}: ${name}` }, label);
      made.onclick = () => {
        made.disabled = true;
        void change(`${label} ${name}`, `${path}/${command}`);
      };
      return made;
    };
    const look = element("button", { type: "button", "aria-label": `What changed: ${name}` }, "What changed");
    look.onclick = () => {
      look.disabled = true;
      void showChanges(name, place);
    };
    place.append(
      ...(changes.length === 0 ? [] : [look]),
      ...(state === "disabled"
        ? [button("Enable", "enable")]
        : [button("Restart", "restart"), button("Disable", "disable")]),
    );
    return place;
  }

  /**
   * Shows what differs from the accepted definitions, and asks. The answer counts for exactly what is shown.
   * @param {string} name
   * @param {HTMLElement} place
   */
  async function showChanges(name, place) {
    const path = `v1/mcp-servers/${encodeURIComponent(name)}`;
    try {
      /** @type {readonly Server["changes"][number][]} */
      const changes = (await session.json(path)).changes;
      const digests = changes.map(({ digest }) => digest);
      const yes = element("button", { type: "button", class: "primary", "aria-label": `Accept: ${name}` }, "Accept");
      yes.onclick = () => {
        yes.disabled = true;
        void change(`Accept the tools of ${name}`, `${path}/accept`, { digests });
      };
      const no = element("button", { type: "button", "aria-label": `Cancel: ${name}`, onclick: load }, "Cancel");
      const shown = changes.flatMap(({ tool, state, difference }) => [
        element("p", { class: "tool-label" }, `${exactLine(tool)} (${state})`),
        element("pre", { tabIndex: 0 }, exactText(difference)),
      ]);
      place.replaceChildren(element("div", { class: "ask" }, ...shown), ...(digests.length === 0 ? [] : [yes]), no);
      // A key that is pressed too long must not answer
      no.focus();
    } catch (error) {
      note.textContent = `What changed at ${name}: ${messageOf(error)}`;
    }
  }

  return {
    load,
    /** Forgets everything, as on signing out. */
    reset() {
      clearTimeout(timer);
      lead.textContent = "";
      note.textContent = "";
      list.replaceChildren();
    },
  };
}

/** @param {Server} server */
function toFacts(
  {
    name,
    changes,
    transport,
    era,
    protocol_version: version,
    since,
    rights,
    sign_in: signIn,
    instructions,
    tools,
    last_error: failed,
    log_tail: log,
  },
) {
  /** @param {{ name: string }} tool */
  const isOffered = ({ name }) => !changes.some(({ tool }) => tool === name);
  const way = transport === "stdio" ? "A program of this machine" : "A server by its address";
  const protocol = era === null ? "No session yet" : `Protocol ${version ?? "unknown"}, ${era} era`;
  const begun = since === null ? "" : `, since ${formatTime(since)}`;
  return [
    element("p", { class: "hint" }, `${way}. ${protocol}${begun}. ${exactLine(rights)}.`),
    ...toLines("Sign-in", toSignIn(name, signIn)),
    ...toLines("Says to models", instructions === null ? [] : [instructions]),
    ...toLines("Not offered until you accept it", changes.map(({ tool, state }) => `${tool} (${state})`)),
    ...toLines("Tools", tools.filter(isOffered).map(({ tool, description }) => `${tool}: ${description}`)),
    ...toLines("Last error", failed === null ? [] : [`${formatTime(failed.at)}, ${failed.code}: ${failed.message}`]),
    ...(log === ""
      ? []
      : [element("p", { class: "tool-label" }, "Log"), element("pre", { tabIndex: 0 }, exactText(log))]),
  ];
}

/**
 * @param {string} name
 * @param {Server["sign_in"]} signIn
 */
function toSignIn(name, { state, issuer, scopes, expires_at: end, renewed }) {
  if (state === "none") return [];
  if (state === "needed") return [`It wants a person to sign in: postern mcp login ${name}`];
  const rights = scopes.length === 0 ? "" : `, for ${scopes.join(" ")}`;
  const until = end === null ? "" : `, until ${formatTime(end)}`;
  return [`Signed in with ${issuer ?? ""}${rights}${until}${renewed ? ", renewed by itself" : ""}`];
}

/**
 * @param {string} title
 * @param {readonly string[]} lines
 */
function toLines(title, lines) {
  if (lines.length === 0) return [];
  return [
    element("p", { class: "tool-label" }, title),
    element("ul", { class: "ask-files" }, ...lines.map((line) => element("li", {}, exactLine(line)))),
  ];
}

/** @param {unknown} error */
function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}
