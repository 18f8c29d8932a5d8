import { byId, element } from "./dom.js";
import { formatMs, formatTime, messageOf } from "./format.js";

/** @typedef {import("../../base/records/cluster_view.ts").ClusterReply} ClusterReply */
/** @typedef {import("../../base/records/cluster_view.ts").ShownCluster} Cluster */
/** @typedef {import("../../base/records/cluster_view.ts").GatewayStatus} Gateway */
/** @typedef {{ root: HTMLTableRowElement, show: (gateway: Gateway) => void }} Row */

const STATE_WORDS = new Map([
  ["alive", "Alive"],
  ["late", "Late"],
  ["draining", "Draining"],
  ["drained", "Drained"],
  ["gone", "Gone"],
]);
const COLUMNS = ["Gateway", "State", "Lease", "Runs", "Machine", "Version", "Started", ""];
/** Place of the runs among the cells after the gateway's name */
const RUNS_AT = COLUMNS.indexOf("Runs") - 1;
const SURE = "Drain it now";

/**
 * Creates the view of the gateways that share the database: who is there, who owns what, what waits; and drains one. Its link is shown
 * only where there is a cluster.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createClusterView({ session }) {
  const link = byId("nav-cluster", HTMLElement);
  const lead = byId("cluster-lead", HTMLElement);
  const note = byId("cluster-note", HTMLElement);
  const facts = byId("cluster-facts", HTMLElement);
  const place = byId("cluster-gateways", HTMLElement);
  const body = element("tbody");
  /** @type {Map<string, Row>} */
  const rows = new Map();
  let isCluster = false;

  /** @param {Promise<ClusterReply>} asking */
  async function show(asking) {
    try {
      const { cluster, reason } = await asking;
      isCluster = cluster !== null;
      link.hidden = !isCluster;
      place.hidden = !isCluster;
      if (cluster === null) {
        facts.replaceChildren();
        lead.textContent = `There is no cluster: ${reason}.`;
        return;
      }
      lead.textContent = sentence(cluster);
      facts.replaceChildren(...factsOf(cluster).map(([name = "", value = ""]) => fact(name, value)));
      showRows(cluster.gateways);
    } catch (error) {
      lead.textContent = `The cluster cannot be shown: ${messageOf(error)}`;
    }
  }

  /**
   * Keeps the row of a gateway that stays, so that a button keeps its focus.
   * @param {readonly Gateway[]} gateways
   */
  function showRows(gateways) {
    const ids = new Set(gateways.map(({ id }) => id));
    for (const [id, { root }] of rows) {
      if (ids.has(id)) continue;
      root.remove();
      rows.delete(id);
    }
    for (const gateway of gateways) {
      const known = rows.get(gateway.id);
      const row = known ?? createRow(gateway.id);
      row.show(gateway);
      if (known !== undefined) continue;
      rows.set(gateway.id, row);
      body.append(row.root);
    }
    if (place.childElementCount > 0) return;
    const head = element("tr", {}, ...COLUMNS.map((name) => element("th", { scope: "col" }, name)));
    place.append(element("table", {}, element("thead", {}, head), body));
  }

  /**
   * @param {string} id
   * @returns {Row}
   */
  function createRow(id) {
    const name = element("th", { scope: "row" });
    const cells = COLUMNS.slice(1, -1).map((column) => element("td", { "data-name": column }));
    const button = element("button", { type: "button", "aria-label": `Drain: ${id}` }, "Drain");
    button.addEventListener("click", () => void press(id, button));
    // A person who looks elsewhere has not decided
    button.addEventListener("blur", () => void (button.disabled || (button.textContent = "Drain")));
    return {
      root: element("tr", {}, name, ...cells, element("td", {}, button)),
      show(gateway) {
        const { state, runs, run_ids: ids } = gateway;
        name.replaceChildren(
          element("code", {}, id),
          ...gateway.this ? [element("span", { class: "hint" }, " this one")] : [],
        );
        const texts = cellsOf(gateway);
        for (const [at, cell] of cells.entries()) if (at !== RUNS_AT) cell.textContent = texts[at] ?? "";
        const badge = element("span", { class: "badge", "data-gateway": state }, STATE_WORDS.get(state) ?? state);
        cells[0]?.replaceChildren(badge);
        const place = cells[RUNS_AT];
        if (place !== undefined) showRuns(place, { runs, ids });
        button.hidden = state !== "alive" && state !== "late";
      },
    };
  }

  /**
   * @param {string} id
   * @param {HTMLButtonElement} button
   */
  async function press(id, button) {
    if (button.textContent !== SURE) {
      button.textContent = SURE;
      note.textContent =
        `${id} will end its work, hand the rest to the others, and take no more until it is started again.`;
      return;
    }
    button.disabled = true;
    try {
      await session.json(`v1/cluster/gateways/${encodeURIComponent(id)}/drain`, { method: "POST" });
      note.textContent = `Drain: ${id} - asked for.`;
    } catch (error) {
      note.textContent = `Drain: ${id} - ${messageOf(error)}`;
    }
    button.disabled = false;
    button.textContent = "Drain";
    await show(session.json("v1/cluster"));
    byId("cluster-title", HTMLElement).focus();
  }

  return {
    /** Asks whether there is a cluster, and shows the link to this view then. A token without the scope sees none. */
    async find() {
      const found = await session.json("v1/cluster").catch(() => undefined);
      isCluster = found !== undefined && found.cluster !== null;
      link.hidden = !isCluster;
    },
    load: () => show(session.json("v1/cluster")),
    async poll() {
      if (isCluster) await show(session.poll("v1/cluster"));
    },
    /** Forgets everything, as on signing out. */
    reset() {
      isCluster = false;
      link.hidden = true;
      lead.textContent = "";
      note.textContent = "";
      facts.replaceChildren();
      rows.clear();
      body.replaceChildren();
    },
  };
}

/**
 * Shows how many runs a gateway owns, and which ones to whoever opens the number. Runs that stay keep the focus and what is open.
 * @param {HTMLElement} cell
 * @param {{ runs: number, ids: readonly string[] }} owned
 */
function showRuns(cell, { runs, ids }) {
  const shown = `${runs} ${ids.join(" ")}`;
  if (cell.dataset["shown"] === shown) return;
  cell.dataset["shown"] = shown;
  if (runs === 0) return void (cell.textContent = "0");
  const isOpen = cell.querySelector("details")?.open === true;
  const more = runs - ids.length;
  const details = element(
    "details",
    {},
    element("summary", {}, String(runs)),
    ...ids.map((id) =>
      element("div", {}, element("a", { href: `#runs/${encodeURIComponent(id)}` }, element("code", {}, id)))
    ),
    ...more > 0 ? [element("div", { class: "hint" }, `and ${more} more`)] : [],
  );
  details.open = isOpen;
  cell.replaceChildren(details);
}

/** @param {Cluster} cluster */
function sentence({ gateways, queue }) {
  const count = gateways.length === 1 ? "1 gateway" : `${gateways.length} gateways`;
  const open = queue.open === 1 ? "1 open run" : `${queue.open} open runs`;
  const waits = queue.waiting === 0
    ? "none waits for a gateway"
    : `${queue.waiting} ${queue.waiting === 1 ? "waits" : "wait"} for a gateway, the oldest for ${
      formatMs(queue.lag_ms ?? 0)
    }`;
  const lost = queue.workspaces_without_gateway.reduce((sum, { runs }) => sum + runs, 0);
  const strays = lost === 0 ? "" : `; ${lost} ${lost === 1 ? "waits" : "wait"} for a workspace without a gateway`;
  return `${count}, ${open}, ${waits}${strays}.`;
}

/**
 * @param {Cluster} cluster
 * @returns {string[][]}
 */
function factsOf({ queue, database, own }) {
  const bound = queue.waiting_for_workspace;
  return [
    ...bound === 0 ? [] : [["Waiting for a workspace", String(bound)]],
    ...queue.workspaces_without_gateway.map(({ workspace, runs, last_gateway: last }) => [
      "Workspace without a gateway",
      `${workspace}: ${runs === 1 ? "1 run waits" : `${runs} runs wait`}${
        last === null ? "" : `, ${whereTo(workspace, last)}`
      }`,
    ]),
    ...database === null ? [] : [
      ["Database", `PostgreSQL ${database.server_version}, ${database.role}`],
      ["Connections", `${database.connections} of ${database.max_connections}`],
      ["Failover", database.replication_window ?? "loses nothing that was answered"],
    ],
    ["Heartbeat of this gateway", own.round_trip_ms === null ? "none yet" : formatMs(own.round_trip_ms)],
    ["It may act for", own.lease_left_ms === 0 ? "not now: its lease is lost" : formatMs(own.lease_left_ms)],
  ];
}

/**
 * Says where a gateway is missing. The workspace of one gateway, whose id begins with ws_, is its own: another gateway cannot have it.
 * @param {string} workspace
 * @param {NonNullable<import("../../base/records/cluster_view.ts").StrandedWorkspace["last_gateway"]>} last
 */
function whereTo(workspace, { host, folder, data_dir: dataDir }) {
  return workspace.startsWith("ws_")
    ? `for the gateway in ${folder} (data directory ${dataDir}) on ${host}`
    : `for a gateway with this workspace, the last one was in ${folder} on ${host}`;
}

/**
 * @param {Gateway} gateway
 * @returns {string[]}
 */
function cellsOf({ lease_left_ms: left, host, pid, version, started_at: started }) {
  return [
    "",
    left === null ? "" : left <= 0 ? "run out" : formatMs(left),
    "",
    host === null ? "" : `${host}:${pid ?? ""}`,
    version ?? "",
    started === null ? "" : formatTime(started),
  ];
}

/**
 * @param {string} name
 * @param {string} value
 */
function fact(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", {}, ...breakable(value)));
}

/**
 * Returns a text that may be broken after each underscore, so that the long name of a setting is not broken inside its words.
 * @param {string} text
 * @returns {(Node | string)[]}
 */
function breakable(text) {
  return text.split(/(?<=_)/).flatMap((part, at) => at === 0 ? [part] : [element("wbr"), part]);
}
