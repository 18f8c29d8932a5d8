import type { PluginCapabilities } from "../manifest.ts";

/** Module name of Extism's own functions. */
export const KERNEL = "extism:host/env";
/** Module name of the functions that Postern adds. */
export const HOST = "extism:host/user";
/** Module name of the functions of WASI. */
export const WASI = "wasi_snapshot_preview1";

/** Functions of Extism that every module may import: memory, input, output, error, variables, configuration and log. */
const KERNEL_FUNCTIONS = [
  ...["alloc", "free", "length", "length_unsafe", "load_u8", "load_u64", "store_u8", "store_u64"],
  ...["input_offset", "input_length", "input_load_u8", "input_load_u64", "output_set", "error_set"],
  ...["config_get", "var_get", "var_set", "get_log_level"],
  ...["log_trace", "log_debug", "log_info", "log_warn", "log_error"],
];
/** Functions of Extism for a module whose manifest has `hosts`. */
const HTTP_FUNCTIONS = ["http_request", "http_status_code", "http_headers"];
/** Functions of WASI that reach nothing of the machine: every module may import them. */
const PLAIN_WASI = [
  ...[
    "args_get",
    "args_sizes_get",
    "environ_get",
    "environ_sizes_get",
    "clock_res_get",
    "clock_time_get",
    "random_get",
  ],
  ...["sched_yield", "poll_oneoff", "proc_exit", "fd_write", "fd_read", "fd_close", "fd_seek", "fd_fdstat_get"],
  ...["fd_fdstat_set_flags", "fd_prestat_get", "fd_prestat_dir_name"],
];
/** Functions of WASI that answer "not allowed". A module may import those that its manifest lists in `host_functions`. */
export const REFUSING_WASI: readonly string[] = [
  ...["fd_advise", "fd_allocate", "fd_datasync", "fd_fdstat_set_rights", "fd_filestat_get", "fd_filestat_set_size"],
  ...["fd_filestat_set_times", "fd_pread", "fd_pwrite", "fd_readdir", "fd_renumber", "fd_sync", "fd_tell"],
  ...["path_create_directory", "path_filestat_get", "path_filestat_set_times", "path_link", "path_open"],
  ...["path_readlink", "path_remove_directory", "path_rename", "path_symlink", "path_unlink_file", "proc_raise"],
  ...["sock_accept", "sock_recv", "sock_send", "sock_shutdown"],
];
/** Functions of the host over the workspace, with the least capability that grants them. */
const WORKSPACE_FUNCTIONS: Readonly<Record<string, readonly PluginCapabilities["workspace"][]>> = {
  workspace_read: ["read", "write"],
  workspace_list: ["read", "write"],
  workspace_write: ["write"],
};

/** Returns whether a module with these capabilities may import a function. */
export function grantsImport(
  { workspace, hosts, host_functions: listed }: PluginCapabilities,
): (module: string, name: string) => boolean {
  return (module, name) => {
    switch (module) {
      case KERNEL:
        return KERNEL_FUNCTIONS.includes(name) || (hosts.length > 0 && HTTP_FUNCTIONS.includes(name));
      case WASI:
        return PLAIN_WASI.includes(name) || (REFUSING_WASI.includes(name) && listed.includes(name));
      case HOST:
        return Object.hasOwn(WORKSPACE_FUNCTIONS, name) && WORKSPACE_FUNCTIONS[name]?.includes(workspace) === true;
      default:
        return false;
    }
  };
}
