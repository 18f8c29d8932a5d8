import * as v from "valibot";
import { LOG_LEVELS } from "../../base/telemetry/log.ts";
import { about, choice, text } from "./value.ts";

/** `[storage]`: `url` is for `postgres` alone and may hold a password. */
export const storageSchema = v.strictObject({
  driver: about(
    "Where records are kept: `sqlite` in the data directory, or `memory`, which forgets them at the end. This version has no `postgres`",
    choice(["sqlite", "memory", "postgres"], "sqlite"),
  ),
  url: about("Address of the database server. For `postgres` alone", text("")),
});

/** `[logging]`: lines go to stderr, or to the daemon's log file. */
export const loggingSchema = v.strictObject({
  level: about("Least important line that is written", choice(LOG_LEVELS, "info")),
  format: about("Lines for people or for programs", choice(["pretty", "json"], "pretty")),
});
