/** Preloaded by the measured gateways: answers each message of the parent with what the process has used, and ends with the parent. */
import process from "node:process";

process.on("message", () => process.send?.({ ...process.cpuUsage(), rss: process.memoryUsage.rss() }));
process.on("disconnect", () => process.exit());
// The channel keeps no process alive that would end by itself
process.channel?.unref();
