import { askRoute } from "../reach_gateway.ts";
import { clientOf } from "./ask_gateway.ts";
import { type Check, fine, warning } from "./finding.ts";

const NAME = "instructions";

/** Checks whether runs are told of AGENTS.md or its like of the workspace. */
export const instructionsCheck: Check = {
  name: NAME,
  async run(installation) {
    const { config } = installation.loaded;
    if (!config.agent.workspace_instructions) return fine(NAME, "Off: [agent] workspace_instructions is false");
    const client = clientOf(installation);
    if (client === undefined) return fine(NAME, "Not looked at: no gateway runs");
    const told = await askRoute(client, "GET /v1/workspace-instructions");
    if (told === undefined) return warning(NAME, "The gateway does not tell of them", "postern instructions show");
    const { state, file, reason, used_bytes: used } = told;
    if (state === "trusted") return fine(NAME, `Runs are told of ${file} (${used} bytes)`);
    if (state === "none") return fine(NAME, `On, and ${reason}`);
    return warning(NAME, `Runs are not told of ${file}: it is ${state}`, `${reason ?? "postern instructions show"}`);
  },
};
