import { exactLine } from "../../lib/base/text.ts";
import { defineCliCommand } from "../command.ts";
import { withGateway } from "../reach_gateway.ts";
import { toTable } from "../terminal/terminal_text.ts";

const MAX_SHOWN = 1000;

/** Command `postern taint list`: files that were made from outside content. */
export const taintListCommand = defineCliCommand({
  args: {},
  example: "postern taint list",
  run: (context) =>
    withGateway(context, async (gateway) => {
      const { data, has_more } = await gateway.call("GET /v1/tainted-files", { query: { limit: MAX_SHOWN } });
      const rows = data.map(({ path, taint, marked_at }) => [path, marked_at, taint.join(", ")]);
      const none = "No file is known to be made from content from outside";
      context.print(
        data,
        rows.length === 0 ? none : toTable(["FILE", "SINCE", "FROM"], rows, context.io.columns),
      );
      if (has_more) context.say(`These are the first ${MAX_SHOWN}; there are more.`);
    }),
});

/** Command `postern taint clear <path>`: vouches for a file, or for every file below a folder, so that reading them taints no run. */
export const taintClearCommand = defineCliCommand({
  args: {
    path: {
      type: "positional",
      required: true,
      description: "File or folder, relative to the workspace, from postern taint list",
    },
  },
  example: "postern taint clear docs/page.md",
  run: (context, { path }) =>
    withGateway(context, async (gateway) => {
      const reply = await gateway.call("DELETE /v1/tainted-files", { query: { path } });
      const count = reply.cleared === 1 ? "1 file" : `${reply.cleared} files`;
      context.print(reply, `Cleared ${exactLine(path)}: ${count}`);
    }),
});
