import process from "node:process";
import { systemClock } from "../../../lib/base/clock.ts";
import { openLogFile } from "../../../lib/host/daemon/log_file.ts";

/** Program, `<path> <first> <max bytes>`: writes numbered lines from `first` on until it is killed, telling each on stdout. */
const [path = "", first = "0", maxBytes = "1000"] = process.argv.slice(2);
const log = openLogFile({
  path,
  clock: systemClock,
  toLine: ({ message }) => `${message} ${"x".repeat(40)}`,
  maxBytes: Number(maxBytes),
});
for (let number = Number(first);; number++) {
  log.write({ level: "info", time: 0, message: String(number), fields: {} });
  if (!process.stdout.write(`${number}\n`)) await new Promise((resolve) => process.stdout.once("drain", resolve));
}
