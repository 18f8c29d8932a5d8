import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { chmodSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { freePort } from "./free_port.ts";
import { NO_POSTGRES } from "./postgres_server.ts";
import { withTemporaryFolder } from "./temporary_folder.ts";
import { until } from "./until.ts";

/** Reason for which no test can use PgBouncer here. False: there is one. */
export const NO_POOLER = NO_POSTGRES ||
  (spawnSync("pgbouncer", ["--version"]).status === 0 ? false : "no pgbouncer was found: install Debian's package");

/** Runs `use` with the port of PgBouncer in transaction mode, which has two connections to the server of the address. */
export async function withPooler(url: string, use: (port: number) => Promise<void>): Promise<void> {
  const { username, password, port: serverPort } = new URL(url);
  await withTemporaryFolder(async (folder) => {
    const port = await freePort();
    writeFileSync(join(folder, "users.txt"), `"${username}" "${password}"\n`);
    writeFileSync(
      join(folder, "pgbouncer.ini"),
      `[databases]
* = host=127.0.0.1 port=${serverPort}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = scram-sha-256
auth_file = ${join(folder, "users.txt")}
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
`,
    );
    chmodSync(folder, 0o755);
    // PgBouncer refuses to run as root
    const asOther = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};
    const pooler = spawn("pgbouncer", [join(folder, "pgbouncer.ini")], {
      stdio: ["ignore", "pipe", "pipe"],
      ...asOther,
    });
    let said = "";
    for (const stream of [pooler.stdout, pooler.stderr]) stream.on("data", (data) => void (said += String(data)));
    const over = once(pooler, "exit");
    try {
      await until(() => /process up/.test(said) || pooler.exitCode !== null, () => `it does not start: ${said}`);
      await use(port);
    } finally {
      pooler.kill("SIGKILL");
      await over;
    }
  });
}
