import * as v from "valibot";
import { LOG_LEVELS } from "../../base/telemetry/log.ts";
import { choice, text } from "./value.ts";

/** `[storage]`: `url` is for `postgres` alone and may hold a password. */
export const storageSchema = v.strictObject({
  driver: choice(["sqlite", "memory", "postgres"], "sqlite"),
  url: text(""),
});

/** `[logging]`: lines go to stderr, or to the daemon's log file. */
export const loggingSchema = v.strictObject({
  level: choice(LOG_LEVELS, "info"),
  format: choice(["pretty", "json"], "pretty"),
});
