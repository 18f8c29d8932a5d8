import * as v from "valibot";
import { LOG_LEVELS, RECENT_LINES } from "../../lib/base/telemetry/log.ts";
import { defineRoute } from "../define_route.ts";
import { choiceQuery, countQuery, listSchema, MAX_POSITION, placedListReply, positionQuery } from "../wire/lists.ts";

const MAX_TEXT_CHARACTERS = 4_000;
const MAX_FIELDS_CHARACTERS = 16_000;

const lineSchema = v.object({
  object: v.literal("log_line"),
  seq: v.number(),
  time: v.string(),
  level: v.picklist(LOG_LEVELS),
  message: v.string(),
  fields: v.record(v.string(), v.unknown()),
});

/** GET /v1/logs: the last lines of the gateway's log, as it keeps them in memory. */
export const logsRoute = defineRoute({
  method: "GET",
  path: "/v1/logs",
  access: "admin",
  needs: ["recentLog"],
  summary: `The last ${RECENT_LINES} lines of the log, newest first, without secrets`,
  query: {
    limit: countQuery("How many", { max: RECENT_LINES, usual: RECENT_LINES }),
    after: positionQuery("Only lines older than this one, the last_id of the list before", MAX_POSITION),
    since: positionQuery("Only lines newer than the one with this seq"),
    level: choiceQuery("Only lines of this level and the more urgent ones. Default all", LOG_LEVELS),
  },
  reply: { status: 200, type: "application/json", schema: listSchema(lineSchema) },
  handle({ recentLog }, { query: { limit, after: beforeSeq, since: sinceSeq, level = "debug" } }) {
    const { lines, hasMore } = recentLog.list({ limit, beforeSeq, sinceSeq, level });
    const data = lines.map(({ seq, time, level, message, fields }) => ({
      object: "log_line",
      seq,
      time: new Date(time).toISOString(),
      level,
      message: shortened(message, MAX_TEXT_CHARACTERS),
      fields: boundedFields(fields),
    }));
    return placedListReply(data, { hasMore, lastId: String(lines.at(-1)?.seq ?? "") || null });
  },
});

/** Fields of a line are for people; those of an error with many causes may be endless. */
function boundedFields(fields: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> {
  const text = JSON.stringify(fields);
  return text.length <= MAX_FIELDS_CHARACTERS ? fields : { cut: shortened(text, MAX_FIELDS_CHARACTERS) };
}

function shortened(text: string, maxCharacters: number): string {
  return text.length <= maxCharacters
    ? text
    : `${text.slice(0, maxCharacters)}... (${text.length - maxCharacters} more characters)`;
}
