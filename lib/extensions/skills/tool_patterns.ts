/** Tools of this gateway by the name that other programs give to the like of them. */
const TOOLS: ReadonlyMap<string, readonly string[]> = new Map(Object.entries({
  askuserquestion: ["ask_user"],
  bash: ["shell", "process_tool"],
  edit: ["file_edit", "apply_patch"],
  glob: ["glob_search"],
  grep: ["content_search"],
  multiedit: ["file_edit", "apply_patch"],
  notebookedit: ["file_edit", "apply_patch"],
  read: ["read_file"],
  task: ["delegate", "subagent_spawn"],
  todowrite: ["task_plan"],
  webfetch: ["web_fetch"],
  websearch: ["web_search"],
  write: ["write_file"],
}));

/** Name that stands for all tools of an MCP server */
const SERVER = /^mcp__(?:(?!__)[^*])+$/;

/**
 * Returns the patterns of this gateway's tools that the names in `disallowed-tools` stand for: `*`, names, `prefix*`. A rule about some
 * calls of a tool, such as `Bash(rm:*)`, stands for all of them: a rule that cannot be held exactly is held more strictly.
 */
export function toToolPatterns(names: readonly string[]): readonly string[] {
  const plain = names.map((name) => name.trim().replace(/\(.*$/s, "").trim()).filter((name) => name !== "");
  const patternsOf = (name: string) => TOOLS.get(name.toLowerCase()) ?? [SERVER.test(name) ? `${name}__*` : name];
  return [...new Set(plain.flatMap(patternsOf))];
}
