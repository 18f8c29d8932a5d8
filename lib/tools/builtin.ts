import { agentsIpc } from "./agents/agents_ipc.ts";
import { askUser } from "./agents/ask_user.ts";
import { delegate } from "./agents/delegate.ts";
import { delegateCoordinationStatus } from "./agents/delegate_coordination_status.ts";
import { modelRoutingConfig } from "./agents/model_routing_config.ts";
import { subagentList } from "./agents/subagent_list.ts";
import { subagentManage } from "./agents/subagent_manage.ts";
import { subagentSpawn } from "./agents/subagent_spawn.ts";
import { toolSearch } from "./agents/tool_search.ts";
import { docxRead } from "./documents/docx_read.ts";
import { imageInfo } from "./documents/image_info.ts";
import { pdfRead } from "./documents/pdf_read.ts";
import { applyPatch } from "./files/apply_patch.ts";
import { contentSearch } from "./files/content_search.ts";
import { fileEdit } from "./files/file_edit.ts";
import { globSearch } from "./files/glob_search.ts";
import { readFile } from "./files/read_file.ts";
import { writeFile } from "./files/write_file.ts";
import { gitOperations } from "./git/git_operations.ts";
import { hardwareBoardInfo } from "./hardware/hardware_board_info.ts";
import { hardwareMemoryMap } from "./hardware/hardware_memory_map.ts";
import { hardwareMemoryRead } from "./hardware/hardware_memory_read.ts";
import { cliDiscovery } from "./host/cli_discovery.ts";
import { screenshot } from "./host/screenshot.ts";
import { composio } from "./integrations/composio.ts";
import { pushover } from "./integrations/pushover.ts";
import { memoryForget } from "./memory/memory_forget.ts";
import { memoryRecall } from "./memory/memory_recall.ts";
import { memoryStore } from "./memory/memory_store.ts";
import { taskPlan } from "./memory/task_plan.ts";
import { processTool } from "./process/process_tool.ts";
import { shell } from "./process/shell.ts";
import { browser } from "./web/browser.ts";
import { browserOpen } from "./web/browser_open.ts";
import type { Tool } from "./runtime/tool.ts";
import { skillRead } from "./skills/skill_read.ts";
import { cronAdd } from "./schedule/cron_add.ts";
import { cronList } from "./schedule/cron_list.ts";
import { cronPause } from "./schedule/cron_pause.ts";
import { cronRemove } from "./schedule/cron_remove.ts";
import { cronResume } from "./schedule/cron_resume.ts";
import { cronUpdate } from "./schedule/cron_update.ts";
import { schedule } from "./schedule/schedule.ts";
import { sopAdvance } from "./sops/sop_advance.ts";
import { sopApprove } from "./sops/sop_approve.ts";
import { sopExecute } from "./sops/sop_execute.ts";
import { sopList } from "./sops/sop_list.ts";
import { sopStatus } from "./sops/sop_status.ts";
import { httpRequest } from "./web/http_request.ts";
import { webFetch } from "./web/web_fetch.ts";
import { proxyConfig } from "./web/proxy_config.ts";
import { urlValidation } from "./web/url_validation.ts";
import { webSearch } from "./web/web_search.ts";
import { mcp } from "./mcp/mcp.ts";
import { mcpPrompt } from "./mcp/mcp_prompt.ts";
import { mcpResource } from "./mcp/mcp_resource.ts";
import { wasmModule } from "./wasm/wasm_module.ts";
import { wasmToolExec } from "./wasm/wasm_tool_exec.ts";

/** All built-in tools, by family. */
export const BUILTIN_TOOLS: readonly Tool[] = [
  readFile,
  globSearch,
  contentSearch,
  writeFile,
  fileEdit,
  applyPatch,
  docxRead,
  pdfRead,
  imageInfo,
  memoryStore,
  memoryRecall,
  memoryForget,
  taskPlan,
  cliDiscovery,
  screenshot,
  shell,
  processTool,
  gitOperations,
  httpRequest,
  webFetch,
  webSearch,
  browser,
  browserOpen,
  composio,
  pushover,
  urlValidation,
  proxyConfig,
  cronAdd,
  cronList,
  cronUpdate,
  cronPause,
  cronResume,
  cronRemove,
  schedule,
  subagentSpawn,
  subagentList,
  subagentManage,
  delegate,
  delegateCoordinationStatus,
  agentsIpc,
  askUser,
  modelRoutingConfig,
  toolSearch,
  sopList,
  sopExecute,
  sopStatus,
  sopAdvance,
  sopApprove,
  hardwareBoardInfo,
  hardwareMemoryMap,
  hardwareMemoryRead,
  wasmModule,
  wasmToolExec,
  mcp,
  mcpPrompt,
  mcpResource,
  skillRead,
];
