import { haltedPart } from "../../lib/base/records/gateway_status.ts";
import { readControlFile } from "../../lib/host/control_file.ts";
import { type CommandContext, defineCliCommand, EXIT } from "../command.ts";
import { probeGateway, type ReachedGateway, reachGateway } from "../reach_gateway.ts";
import { printableLine, toDefinitions } from "../terminal/terminal_text.ts";

const MAX_COUNTED = 100;
/** Things that a person may have to look at, with the command that shows them. */
const WAITING = [
  ["Questions", "GET /v1/approvals", "pending", "postern approval list --status pending"],
  ["To decide", "GET /v1/runs", "needs_review", "postern run list --status needs_review"],
  ["At work", "GET /v1/runs", "running", "postern run list --status running"],
] as const;

/** Command `postern status`: exit code 0 whether a gateway runs or not. */
export const statusCommand = defineCliCommand({
  args: {},
  example: "postern status",
  async run(context) {
    const { dataDir, workspace, file } = await context.loadConfig();
    const record = await readControlFile(dataDir);
    const health = record === undefined ? "silent" : await probeGateway(record);
    if (record === undefined || health === "silent") {
      const rows = [["Workspace", workspace], ["Data", dataDir], [
        "Configuration",
        file?.path ?? "no file, all defaults",
      ]];
      context.print(
        { running: false, workspace, data_dir: dataDir },
        `No gateway is running; start one with postern gateway\n\n${shown(rows, context)}`,
      );
      return EXIT.ok;
    }
    const gateway = await reachGateway(context, { agent: false });
    try {
      const status = await gateway.call("GET /v1/status");
      const counts = await Promise.all(WAITING.map(([, name, status]) => count(gateway, name, status)));
      const { provider, containment, config, halts = [], unreadable_records: damaged, notify_problems: untold = [] } =
        status;
      const rows = [
        ["Address", record.address],
        ["Health", status.status],
        ["Since", status.started_at],
        ...halts.map((
          halt,
        ) => ["Halted", `${haltedPart(halt)}, since ${halt.halted_at}; postern resume lets it go on`]),
        ["Model", provider === null ? "none" : `${provider.name}/${provider.model}, since ${provider.reason}`],
        ["Sandbox", containment.text],
        ["Workspace", status.workspace],
        ...(config.needs_restart.length === 0
          ? []
          : [["Restart", `needed for changes of ${config.needs_restart.join(", ")}`]]),
        ...(config.last_reload?.problem ? [["Configuration", config.last_reload.problem]] : []),
        ...untold.map(({ name, reason }) => ["Notify", `the rule ${name} cannot deliver: ${reason}`]),
        ...(damaged.length === 0 ? [] : [["Damaged", `${damaged.length} records; see postern doctor`]]),
        ...WAITING.flatMap((
          [name, , , command],
          index,
        ) => (counts[index] === "0" ? [] : [[name, `${counts[index]}; see ${command}`]])),
      ];
      const [questions, reviews, running] = counts;
      context.print(
        { running: true, address: record.address, ...status, waiting: { questions, reviews, running } },
        `Postern ${status.version} is running\n\n${shown(rows, context)}`,
      );
      return EXIT.ok;
    } finally {
      await gateway.close();
    }
  },
});

/** Counts the records of a list, up to a page of them. */
async function count(gateway: ReachedGateway, name: typeof WAITING[number][1], status: string): Promise<string> {
  const { data, has_more: hasMore } = await gateway.call(name, { query: { status, limit: MAX_COUNTED } });
  return `${data.length}${hasMore ? "+" : ""}`;
}

function shown(rows: readonly (readonly string[])[], { io }: CommandContext): string {
  return toDefinitions(rows.map(([name = "", value = ""]) => [name, printableLine(value)] as const), io.columns);
}
