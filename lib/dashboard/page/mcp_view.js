import { byId, element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";
import { button, createExtensionList, toChoices, toLines, toRow } from "./extension_list.js";
import { formatTime, messageOf } from "./format.js";

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

/** @typedef {import("../../base/records/extension_views.ts").McpServerInfo} Server */

/**
 * The MCP servers of the configuration: state, tools, last error and log; to turn them off and on and to restart them. Words of a server
 * are somebody else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createMcpView({ session }) {
  /** @type {ReturnType<typeof setTimeout> | undefined} */
  let timer;
  let looks = 0;

  const list = createExtensionList({
    id: "mcp",
    things: "servers",
    async read() {
      clearTimeout(timer);
      /** @type {readonly Server[]} */
      const servers = (await session.json("v1/mcp-servers")).data;
      lookAgain(servers.some(({ state }) => state === "starting"));
      const ready = servers.filter(({ state }) => state === "ready").length;
      const on = servers.filter(({ state }) => state !== "disabled").length;
      return {
        lead: servers.length === 0
          ? "There is no server. Add one: postern mcp add."
          : `${on} of ${servers.length} enabled, ${ready} connected. A server connects on its first call. Each disabled item says how to enable it.`,
        rows: servers.map(toServerRow),
      };
    },
  });

  /**
   * Looks again soon while a server is starting, as long as the servers are what the page shows.
   * @param {boolean} isStarting
   */
  function lookAgain(isStarting) {
    if (!isStarting || looks++ >= MAX_LOOKS) {
      looks = 0;
      return;
    }
    timer = setTimeout(() => {
      if (!byId("mcp", HTMLElement).hidden) void list.load();
    }, LOOK_MS);
  }

  /** @param {Server} server */
  function toServerRow(server) {
    const { name, state, reason, server: self, last_error: failed } = server;
    return toRow(`mcp-${name}`, {
      on: state !== "disabled" && state !== "failed",
      name,
      badge: element("span", { class: "badge", "data-run": COLOURS.get(state) ?? "" }, STATES.get(state) ?? state),
      description: self === null ? "" : `${self.name} ${self.version}`,
      why: reason ?? (state === "failed" ? failed?.message ?? "" : ""),
    }, [...toFacts(server), toButtons(server)]);
  }

  /** @param {Server} server */
  function toButtons({ name, state, changes }) {
    const path = `v1/mcp-servers/${encodeURIComponent(name)}`;
    /** @type {(label: string, command: string, body?: unknown) => Promise<void>} */
    const change = (label, command, body) =>
      list.change(label, async () => {
        const request = { method: "POST", ...(body === undefined ? {} : { body }) };
        /** @type {Server} */
        const server = await (await session.request(`${path}/${command}`, request)).json();
        if (server.state === "failed") throw new Error(exactLine(server.last_error?.message ?? "it failed"));
      });
    const command = (/** @type {string} */ label) =>
      button(label, name, () => change(`${label} ${name}`, label.toLowerCase()));
    /** @param {import("./extension_list.js").Ask} ask the answer counts for exactly the differences that are shown */
    const showChanges = async (ask) => {
      try {
        /** @type {readonly Server["changes"][number][]} */
        const shown = (await session.json(path)).changes;
        const digests = shown.map(({ digest }) => digest);
        const accept = () => change(`Accept the tools of ${name}`, "accept", { digests });
        ask("Accept", [toDifferences(shown)], digests.length === 0 ? undefined : accept);
      } catch (error) {
        list.say(`What changed at ${name}: ${messageOf(error)}`);
      }
    };
    return toChoices(name, (ask) => [
      ...(changes.length === 0 ? [] : [button("What changed", name, () => showChanges(ask))]),
      ...(state === "disabled" ? [command("Enable")] : [command("Restart"), command("Disable")]),
    ]);
  }

  return {
    load: list.load,
    /** Forgets everything, as on signing out. */
    reset() {
      clearTimeout(timer);
      list.reset();
    },
  };
}

/** @param {readonly Server["changes"][number][]} changes */
function toDifferences(changes) {
  const shown = changes.flatMap(({ tool, state, difference }) => [
    element("p", { class: "tool-label" }, `${exactLine(tool)} (${state})`),
    element("pre", { tabIndex: 0 }, exactText(difference)),
  ]);
  return element("div", { class: "ask" }, ...shown);
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
    left_out: leftOut,
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
    ...toLines("Left out", leftOut),
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
