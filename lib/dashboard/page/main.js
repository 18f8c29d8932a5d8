import { createApprovalsView } from "./approvals_view.js";
import { createBrowserAlerts } from "./browser_alerts.js";
import { createChatView } from "./chat_view.js";
import { createClusterView } from "./cluster_view.js";
import { byId, element } from "./dom.js";
import { messageOf } from "./format.js";
import { createHaltButton } from "./halt_button.js";
import { createInstructionsCard } from "./instructions_card.js";
import { createLogsView } from "./logs_view.js";
import { createMcpView } from "./mcp_view.js";
import { createMemoryView } from "./memory_view.js";
import { createPairView } from "./pair_view.js";
import { createPluginsView } from "./plugins_view.js";
import { createRunsView } from "./runs_view.js";
import { createSchedulesView } from "./schedules_view.js";
import { addressOf, createSession } from "./session.js";
import { createSkillsView } from "./skills_view.js";
import { createStatusView } from "./status_view.js";
import { createToolsView } from "./tools_view.js";

const VIEWS = [
  "chat",
  "runs",
  "schedules",
  "approvals",
  "memory",
  "tools",
  "plugins",
  "mcp",
  "skills",
  "cluster",
  "status",
  "logs",
];
const POLL_MS = 3000;
/** Polls of which one looks for approvals while nobody sees the page. */
const HIDDEN_POLLS = 5;
const HEALTH_WORDS = new Map([["ok", "Ready"], ["degraded", "Degraded"], ["draining", "Shutting down"]]);

const NO_MODEL =
  'The gateway lists no model, so nothing may answer here: see "kind" in the [provider] section of postern.toml.';

const NOT_REVOKED = "Signed out here, but the gateway could not be told: postern token remove ends the token.";

/** Starts the page. */
export function start() {
  const session = createSession({ onRefused: () => openPairing("The token is no longer valid: pair again.") });
  const pairing = createPairView({ session, onPaired: enter });
  const chat = createChatView({ session });
  const alerts = createBrowserAlerts();
  const approvals = createApprovalsView({ session, onWaiting: alerts.show });
  const runs = createRunsView({ session });
  const schedules = createSchedulesView({ session });
  const tools = createToolsView({ session });
  const plugins = createPluginsView({ session });
  const mcp = createMcpView({ session });
  const skills = createSkillsView({ session });
  const instructions = createInstructionsCard({ session });
  const memory = createMemoryView({ session });
  const logs = createLogsView({ session });
  const status = createStatusView();
  const cluster = createClusterView({ session });
  const halting = createHaltButton({ session, onChange: () => void poll() });
  let entered = false;
  let reachable = true;
  let hiddenPolls = 0;

  /** @param {string} [reason] */
  function openPairing(reason) {
    entered = false;
    halting.show(undefined);
    chat.reset();
    approvals.reset();
    runs.reset();
    schedules.reset();
    plugins.reset();
    mcp.reset();
    skills.reset();
    instructions.reset();
    memory.reset();
    logs.reset();
    cluster.reset();
    showView("pair", "Pair");
    pairing.open(reason);
  }

  function enter() {
    entered = true;
    openView();
    void readHealth().then((health) => halting.show(entered ? health : undefined));
    void describe();
    void cluster.find();
    void approvals.poll();
  }

  function openView() {
    if (!entered) return;
    const [wanted = "", detail = ""] = location.hash.slice(1).split("/");
    const view = VIEWS.includes(wanted) ? wanted : "chat";
    showView(view, view === "mcp" ? "MCP" : view.charAt(0).toUpperCase() + view.slice(1));
    if (view === "chat") chat.open(decoded(detail));
    else byId(`${view}-title`, HTMLElement).focus();
    runs.open(view === "runs" ? decoded(detail) : "");
    if (view === "runs" && detail === "") void runs.load();
    if (view === "schedules") void schedules.load();
    if (view === "approvals") void approvals.load();
    if (view === "tools") void tools.load();
    if (view === "plugins") void plugins.load();
    if (view === "mcp") void mcp.load();
    if (view === "skills") void Promise.all([skills.load(), instructions.load()]);
    if (view === "memory") void memory.load();
    if (view === "logs") void logs.load();
    if (view === "cluster") void cluster.load();
    if (view === "status") void poll();
  }

  /**
   * @param {string} view
   * @param {string} title
   */
  function showView(view, title) {
    alerts.setTitle(`${title} - Postern`);
    for (const id of ["pair", ...VIEWS]) byId(id, HTMLElement).hidden = id !== view;
    byId("nav", HTMLElement).hidden = view === "pair";
    byId("sign-out", HTMLElement).hidden = view === "pair" || !session.hasToken();
    for (const link of byId("nav", HTMLElement).querySelectorAll("a")) {
      if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
  }

  /** Asks which models there are, and says so in the chat and the status. */
  async function describe() {
    const { models, problem } = await session.json("v1/models").then(
      ({ data }) => ({ models: data, problem: data.length > 0 ? undefined : NO_MODEL }),
      (error) => ({ models: [], problem: messageOf(error) }),
    );
    const health = await readHealth();
    chat.describe({ models, workspace: health?.workspace, problem });
    status.showModels(models, problem);
  }

  /** A draining gateway answers 503, and its reply is as good as another. */
  async function readHealth() {
    try {
      const response = await fetch(addressOf("health"), { cache: "no-store", credentials: "omit" });
      return await response.json();
    } catch {
      return undefined;
    }
  }

  /** Reads the status that an administrator may see; undefined for everybody else. */
  async function readStatus() {
    return await session.poll("v1/status").catch(() => undefined);
  }

  async function showMetrics() {
    const text = await session.request("metrics").then((response) => response.text(), () => "");
    if (text !== "") status.showMetrics(text);
  }

  /** @param {string} view */
  function isShown(view) {
    return !byId(view, HTMLElement).hidden;
  }

  async function poll() {
    if (document.hidden) {
      if (entered && hiddenPolls++ % HIDDEN_POLLS === 0) await approvals.poll();
      return;
    }
    const health = await readHealth();
    showReachable(health);
    if (health !== undefined) halting.show(entered ? health : undefined);
    const canAsk = health !== undefined && entered;
    const isStatus = canAsk && isShown("status");
    status.showHealth(health, isStatus ? await readStatus() : undefined);
    if (!canAsk) return;
    // Each view's own; how many approvals wait is shown in all of them
    await Promise.all([
      approvals.poll(),
      ...(isStatus ? [showMetrics()] : []),
      ...(isShown("runs") ? [runs.poll()] : []),
      ...(isShown("logs") ? [logs.poll()] : []),
      ...(isShown("cluster") ? [cluster.poll()] : []),
    ]);
  }

  /** @param {any} health undefined when the gateway does not answer */
  function showReachable(health) {
    const pill = byId("health-pill", HTMLElement);
    pill.dataset["state"] = health?.status ?? "gone";
    byId("health-text", HTMLElement).textContent = health === undefined
      ? "No answer"
      : HEALTH_WORDS.get(health.status) ?? health.status;
    const nowReachable = health !== undefined;
    if (nowReachable === reachable) return;
    reachable = nowReachable;
    byId("banner", HTMLElement).replaceChildren(
      ...(reachable ? [] : [
        element("p", {}, "The gateway does not answer. Trying again every few seconds; what you typed stays here."),
      ]),
    );
    if (reachable && entered) void describe();
  }

  async function keepPolling() {
    await poll();
    setTimeout(() => void keepPolling(), POLL_MS);
  }

  addEventListener("hashchange", openView);
  document.addEventListener("visibilitychange", () => void poll());
  byId("skip", HTMLAnchorElement).addEventListener("click", (event) => {
    event.preventDefault();
    byId("main", HTMLElement).focus();
  });
  byId("sign-out", HTMLButtonElement).addEventListener("click", async () => {
    const told = session.signOut();
    openPairing();
    if (!await told) pairing.open(NOT_REVOKED);
  });

  void begin();

  /** Enters with the token of this browser, or without one where the gateway wants none. */
  async function begin() {
    const health = await readHealth();
    showReachable(health);
    if (session.hasToken() || document.body.dataset["pairing"] === "off") enter();
    else openPairing();
    void keepPolling();
  }
}

/** @param {string} text a part of an address, as somebody may have typed it */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

start();
