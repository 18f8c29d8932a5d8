import { byId, element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";
import { button, createExtensionList, toChoices, toLines, toRow } from "./extension_list.js";
import { formatTime, messageOf } from "./format.js";

const MAX_BYTES = 67_108_864;
const STATES = new Map([
  ["on", "On"],
  ["untrusted", "Not trusted"],
  ["changed", "Changed"],
  ["unusable", "Cannot be used"],
]);
const SOURCES = new Map([
  ["own", "your folder"],
  ["user", "shared with other agents"],
  ["workspace", "workspace"],
]);

/** @typedef {import("../../base/records/extension_views.ts").SkillInfo} Skill */

/**
 * The skills: where each comes from, why it is off; to look at one and trust it, to install and remove. Texts of a skill are somebody
 * else's: what cannot be seen is spelled out.
 * @param {{ session: import("./session.js").Session }} options
 */
export function createSkillsView({ session }) {
  const name = byId("skills-name", HTMLInputElement);
  const url = byId("skills-url", HTMLInputElement);
  const file = byId("skills-file", HTMLInputElement);
  const install = byId("skills-install", HTMLButtonElement);

  const list = createExtensionList({
    id: "skills",
    things: "skills",
    async read() {
      /** @type {{ data: readonly Skill[], problems: readonly string[] }} */
      const { data: skills, problems } = await session.json("v1/skills");
      const on = skills.filter((skill) => skill.on).length;
      return {
        lead: skills.length === 0
          ? "There is no skill. Install one, or put a folder with a SKILL.md into the skills of your data directory."
          : `${on} of ${skills.length} are on. Each disabled item says how to enable it.`,
        rows: [
          ...skills.map(toSkillRow),
          ...problems.map((problem) => element("li", { class: "skill-problem" }, exactLine(problem))),
        ],
      };
    },
  });

  install.addEventListener("click", async () => {
    const wanted = name.value.trim();
    const chosen = file.files?.[0];
    install.disabled = true;
    await list.change(`Install ${exactLine(wanted)}`, async () => {
      if (wanted === "") throw new Error("say the name of the skill");
      if (chosen === undefined) {
        const body = { name: wanted, url: url.value.trim() };
        if (body.url === "") throw new Error("choose an archive, or name a git repository");
        await session.request("v1/skill-installations", { method: "POST", body });
      } else {
        if (chosen.size > MAX_BYTES) throw new Error("the archive is larger than 64 MiB");
        const query = new URLSearchParams({ name: wanted, from: chosen.name });
        const raw = new Blob([chosen], { type: "application/octet-stream" });
        await session.request(`v1/skills?${query}`, { method: "POST", raw });
      }
      name.value = url.value = "";
    });
    file.value = "";
    install.disabled = false;
  });

  /** @param {Skill} skill */
  function toSkillRow(skill) {
    const { name, on, description, reason, state, source } = skill;
    return toRow(`skill-${name}`, {
      on,
      name,
      badge: element("span", { class: "badge" }, SOURCES.get(source) ?? source),
      description: description ?? "",
      why: on ? "" : `${STATES.get(state) ?? state}: ${reason ?? ""}`,
    }, [...toFacts(skill), toButtons(skill)]);
  }

  /** @param {Skill} skill */
  function toButtons({ name, state, source, installed }) {
    const path = `v1/skills/${encodeURIComponent(name)}`;
    const shownName = exactLine(name);
    const untrust = () =>
      list.change(`Stop trusting ${shownName}`, () => session.request(`${path}/trust`, { method: "DELETE" }));
    const remove = () => list.change(`Remove ${shownName}`, () => session.request(path, { method: "DELETE" }));
    /** @param {import("./extension_list.js").Ask} ask */
    const look = async (ask) => {
      try {
        /** @type {import("../../base/records/extension_views.ts").SkillDetail} */
        const shown = await session.json(path);
        const body = { digest: shown.digest, before: shown.trusted_digest };
        const trust = () => session.request(`${path}/trust`, { method: "POST", body });
        ask("Trust it", [toQuestion(shown)], () => list.change(`Trust ${shownName}`, trust));
      } catch (error) {
        list.say(messageOf(error));
      }
    };
    return toChoices(shownName, (ask) => [
      ...(state === "untrusted" || state === "changed" ? [button("Look at it", shownName, () => look(ask))] : []),
      ...(state === "on" && source === "workspace" ? [button("Stop trusting", shownName, untrust)] : []),
      ...(installed === null ? [] : [button("Remove", shownName, () => ask("Remove it", [], remove))]),
    ]);
  }

  return list;
}

/**
 * The question before a skill is trusted: all its files, or what changed since it was trusted.
 * @param {import("../../base/records/extension_views.ts").SkillDetail} skill
 */
function toQuestion({ text, difference, digest }) {
  const isNew = difference === null;
  return element(
    "div",
    { class: "ask" },
    element(
      "p",
      {},
      isNew
        ? "These are its files. Whoever wrote them tells your agent what to do once you trust them."
        : "This changed since you trusted it. Lines with + are new, lines with - are gone.",
    ),
    element("pre", { tabindex: "0" }, exactText(isNew ? text : difference)),
    element("p", { class: "ask-rule" }, `Content: SHA-256 ${digest}`),
  );
}

/** @param {Skill} skill */
function toFacts(skill) {
  const { state, folder, installed, offered, license, compatibility, files, warnings, hides, digest } = skill;
  const from = installed === null
    ? ""
    : ` Installed ${formatTime(installed.at)} from ${installed.from}${
      installed.commit === null ? "" : `, commit ${installed.commit.slice(0, 12)}`
    }.`;
  return [
    element("p", { class: "hint" }, exactLine(`${STATES.get(state) ?? state}. Folder: ${folder}.${from}`)),
    ...toLines("Needs", compatibility === null ? [] : [compatibility]),
    ...toLines("License", license === null ? [] : [license]),
    ...toLines(
      "For you alone",
      offered || state === "unusable" ? [] : ["the agent is not told of it, and reads it when you name it"],
    ),
    ...toLines("Tools that its author would allow, which grants nothing", skill.allowed_tools),
    ...toLines("Tools that a run loses which reads it", skill.disallowed_tools),
    ...toLines("Hides skills of the same name", hides),
    ...toLines(
      "Warnings",
      warnings.map(({ file, line, key, reason }) => `${file}:${line}: ${key === null ? "" : `${key}: `}${reason}`),
    ),
    ...toLines("Files", files.map(({ path, size }) => `${path} (${size} bytes)`)),
    element("p", { class: "ask-rule hint" }, `SHA-256 ${digest}`),
  ];
}
