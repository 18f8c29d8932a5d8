import type { GenericSchema, InferOutput } from "valibot";
import { auditRoute, verifyAuditRoute } from "./routes/audit.ts";
import {
  answerApprovalRoute,
  approvalRoute,
  approvalRulesRoute,
  approvalsRoute,
  revokeApprovalRuleRoute,
} from "./routes/approvals.ts";
import {
  acceptMcpToolsRoute,
  disableMcpServerRoute,
  enableMcpServerRoute,
  mcpChangeRoute,
  mcpServerRoute,
  mcpServersRoute,
  restartMcpServerRoute,
} from "./routes/mcp_servers.ts";
import { forgetMcpRecordRoute, mcpRecordsRoute } from "./routes/mcp_records.ts";
import { completeMcpLoginRoute, mcpLoginRoute, removeMcpLoginRoute } from "./routes/mcp_logins.ts";
import { browserLoginsRoute, removeBrowserLoginRoute, saveBrowserLoginRoute } from "./routes/browser_logins.ts";
import { chatRoute, chatSocketRoute, legacyWebhookRoute } from "./routes/chat.ts";
import {
  clusterLinkRoute,
  clusterRoute,
  clusterRunsRoute,
  drainGatewayRoute,
  forgetFolderRoute,
} from "./routes/cluster.ts";
import { completionsRoute } from "./routes/completions.ts";
import { embeddingsRoute } from "./routes/embeddings.ts";
import {
  conversationRoute,
  conversationsRoute,
  deleteConversationRoute,
  deleteConversationsRoute,
  renameConversationRoute,
} from "./routes/conversations.ts";
import { dashboardRoute } from "./routes/dashboard_page.ts";
import { answerPageRoute, answerRoute } from "./routes/answer_links.ts";
import { deliveriesRoute, resolveDeliveryRoute, testNotifyRoute } from "./routes/deliveries.ts";
import {
  deleteFileRoute,
  fileContentRoute,
  fileRoute,
  filesRoute,
  runFileContentRoute,
  runFilesRoute,
  sendFileRoute,
} from "./routes/files.ts";
import { haltRoute, haltsRoute, resumeRoute } from "./routes/halts.ts";
import { healthRoute, liveRoute, metricsRoute, statusRoute } from "./routes/health.ts";
import { logsRoute } from "./routes/logs.ts";
import { deleteMemoryRoute, memoryRoute } from "./routes/memory.ts";
import { endMcpSessionRoute, mcpRoute, mcpStreamRoute } from "./routes/mcp.ts";
import { countTokensRoute, messagesRoute } from "./routes/messages.ts";
import { modelRoute, modelsRoute, trustModelServerRoute } from "./routes/models.ts";
import {
  clusterNodeCallRoute,
  clusterNodeDescribeRoute,
  describeNodeRoute,
  invokeNodeRoute,
  nodeRoute,
  nodeSocketRoute,
  nodesRoute,
} from "./routes/nodes.ts";
import {
  disablePluginRoute,
  enablePluginRoute,
  installFromRegistryRoute,
  installPluginRoute,
  pluginRoute,
  pluginsRoute,
  removePluginRoute,
  searchPluginsRoute,
  trustPluginKeyRoute,
} from "./routes/plugins.ts";
import {
  installSkillFromGitRoute,
  installSkillRoute,
  removeSkillRoute,
  skillRoute,
  skillsRoute,
  testSkillRoute,
  trustSkillRoute,
  untrustSkillRoute,
} from "./routes/skills.ts";
import { pingRoute } from "./routes/ping.ts";
import { openApiRoute } from "./routes/openapi.ts";
import { clearTaintRoute, taintedFilesRoute } from "./routes/tainted_files.ts";
import {
  instructionsRoute,
  trustInstructionsRoute,
  untrustInstructionsRoute,
} from "./routes/workspace_instructions.ts";
import {
  createTokenRoute,
  listTokensRoute,
  pairingCodeRoute,
  pairRoute,
  revokeAllTokensRoute,
  revokeTokenRoute,
  tokenRoute,
  wsTicketRoute,
} from "./routes/tokens.ts";
import { checkRecordsRoute, rekeyRoute } from "./routes/storage.ts";
import type { ParamName } from "./define_route.ts";
import type { Route } from "./route.ts";
import { clusterRunEventsRoute, runEventsRoute } from "./routes/run_events.ts";
import {
  cancelResponseRoute,
  compactRoute,
  deleteResponseRoute,
  inputItemsRoute,
  inputTokensRoute,
  responsesRoute,
  storedResponseRoute,
} from "./routes/responses.ts";
import {
  cancelRunRoute,
  resolveRunRoute,
  runBrowserRoute,
  runMessageRoute,
  runRoute,
  runsRoute,
  startRunRoute,
} from "./routes/runs.ts";
import { runScheduleRoute, scheduleHistoryRoute, scheduleRoute, schedulesRoute } from "./routes/schedules.ts";
import { callToolRoute, enableToolRoute, toolRoute, toolsRoute } from "./routes/tools.ts";
import { webhookRoute } from "./routes/webhook.ts";

/** The routes by the names of their handlers. Of two patterns that match a path, the first one takes the request. */
export const ROUTE_TABLE = {
  dashboard: dashboardRoute,
  health: healthRoute,
  live: liveRoute,
  metrics: metricsRoute,
  status: statusRoute,
  pair: pairRoute,
  ping: pingRoute,
  webhook: webhookRoute,
  chat: chatRoute,
  chatCompletions: completionsRoute,
  responses: responsesRoute,
  compactResponse: compactRoute,
  countResponseTokens: inputTokensRoute,
  response: storedResponseRoute,
  responseInputItems: inputItemsRoute,
  cancelResponse: cancelResponseRoute,
  deleteResponse: deleteResponseRoute,
  messages: messagesRoute,
  countTokens: countTokensRoute,
  embeddings: embeddingsRoute,
  chatSocket: chatSocketRoute,
  models: modelsRoute,
  model: modelRoute,
  trustModelServer: trustModelServerRoute,
  legacyWebhook: legacyWebhookRoute,
  startRun: startRunRoute,
  runs: runsRoute,
  runBrowser: runBrowserRoute,
  runFiles: runFilesRoute,
  runFileContent: runFileContentRoute,
  run: runRoute,
  runMessage: runMessageRoute,
  cancelRun: cancelRunRoute,
  resolveRun: resolveRunRoute,
  runEvents: runEventsRoute,
  clusterRunEvents: clusterRunEventsRoute,
  conversations: conversationsRoute,
  conversation: conversationRoute,
  renameConversation: renameConversationRoute,
  deleteConversations: deleteConversationsRoute,
  deleteConversation: deleteConversationRoute,
  memory: memoryRoute,
  deleteMemory: deleteMemoryRoute,
  tools: toolsRoute,
  tool: toolRoute,
  callTool: callToolRoute,
  enableTool: enableToolRoute,
  mcpRecords: mcpRecordsRoute,
  forgetMcpRecord: forgetMcpRecordRoute,
  mcpServers: mcpServersRoute,
  mcpServer: mcpServerRoute,
  enableMcpServer: enableMcpServerRoute,
  acceptMcpTools: acceptMcpToolsRoute,
  disableMcpServer: disableMcpServerRoute,
  restartMcpServer: restartMcpServerRoute,
  mcp: mcpRoute,
  mcpStream: mcpStreamRoute,
  endMcpSession: endMcpSessionRoute,
  approvals: approvalsRoute,
  approval: approvalRoute,
  answerApproval: answerApprovalRoute,
  approvalRules: approvalRulesRoute,
  revokeApprovalRule: revokeApprovalRuleRoute,
  halts: haltsRoute,
  halt: haltRoute,
  resume: resumeRoute,
  taintedFiles: taintedFilesRoute,
  clearTaint: clearTaintRoute,
  schedules: schedulesRoute,
  schedule: scheduleRoute,
  scheduleHistory: scheduleHistoryRoute,
  runSchedule: runScheduleRoute,
  deliveries: deliveriesRoute,
  resolveDelivery: resolveDeliveryRoute,
  testNotify: testNotifyRoute,
  answerPage: answerPageRoute,
  answer: answerRoute,
  nodeSocket: nodeSocketRoute,
  nodes: nodesRoute,
  node: nodeRoute,
  describeNode: describeNodeRoute,
  invokeNode: invokeNodeRoute,
  clusterNodeCall: clusterNodeCallRoute,
  clusterNodeDescribe: clusterNodeDescribeRoute,
  mcpChange: mcpChangeRoute,
  mcpLogin: mcpLoginRoute,
  completeMcpLogin: completeMcpLoginRoute,
  removeMcpLogin: removeMcpLoginRoute,
  cluster: clusterRoute,
  clusterRuns: clusterRunsRoute,
  clusterLink: clusterLinkRoute,
  drainGateway: drainGatewayRoute,
  forgetFolder: forgetFolderRoute,
  browserLogins: browserLoginsRoute,
  saveBrowserLogin: saveBrowserLoginRoute,
  removeBrowserLogin: removeBrowserLoginRoute,
  sendFile: sendFileRoute,
  files: filesRoute,
  file: fileRoute,
  fileContent: fileContentRoute,
  deleteFile: deleteFileRoute,
  plugins: pluginsRoute,
  plugin: pluginRoute,
  installPlugin: installPluginRoute,
  enablePlugin: enablePluginRoute,
  disablePlugin: disablePluginRoute,
  removePlugin: removePluginRoute,
  searchPlugins: searchPluginsRoute,
  installFromRegistry: installFromRegistryRoute,
  trustPluginKey: trustPluginKeyRoute,
  skills: skillsRoute,
  skill: skillRoute,
  testSkill: testSkillRoute,
  installSkill: installSkillRoute,
  installSkillFromGit: installSkillFromGitRoute,
  trustSkill: trustSkillRoute,
  untrustSkill: untrustSkillRoute,
  removeSkill: removeSkillRoute,
  instructions: instructionsRoute,
  trustInstructions: trustInstructionsRoute,
  untrustInstructions: untrustInstructionsRoute,
  wsTicket: wsTicketRoute,
  pairingCode: pairingCodeRoute,
  tokens: listTokensRoute,
  rekey: rekeyRoute,
  checkRecords: checkRecordsRoute,
  token: tokenRoute,
  createToken: createTokenRoute,
  revokeToken: revokeTokenRoute,
  revokeAllTokens: revokeAllTokensRoute,
  audit: auditRoute,
  verifyAudit: verifyAuditRoute,
  logs: logsRoute,
  openApi: openApiRoute(() => ROUTES),
} as const;

/** Every route of the gateway (docs/design/http.md "Middleware"). */
export const ROUTES: readonly Route[] = Object.values(ROUTE_TABLE);

/** Routes of the table by method and path, where their declarations say the types of what is sent and replied. */
type Endpoints = {
  [
    Each in typeof ROUTE_TABLE[keyof typeof ROUTE_TABLE] as string extends Each["path"] ? never
      : `${Each["method"]} ${Each["path"]}`
  ]: Each;
};

/** Method and path of a route, such as `GET /v1/tokens/:id`. */
export type Endpoint = keyof Endpoints;

/** JSON that a route replies with when all goes well, by the schema that it declares; undefined where it has no body. */
export type ReplyOf<Name extends Endpoint> = Endpoints[Name]["reply"] extends
  { readonly schema: infer Schema extends GenericSchema } ? InferOutput<Schema> : undefined;

/** Names of the parameters in the path of a route; never where it has none. */
export type ParamsOf<Name extends Endpoint> = ParamName<Endpoints[Name]["path"]>;

/** Query that a client sends to a route. Its values are written as text. */
export type QueryOf<Name extends Endpoint> = Endpoints[Name] extends { readonly query?: infer Query }
  ? { readonly [Field in keyof Query]?: string | number | boolean | undefined }
  : never;
