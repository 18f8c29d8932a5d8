import { auditRoute, verifyAuditRoute } from "./audit.ts";
import { answerApprovalRoute, approvalRoute, approvalsRoute } from "./approvals.ts";
import { approvalRulesRoute, revokeApprovalRuleRoute } from "./approval_rules.ts";
import { chatRoute, legacyWebhookRoute } from "./chat.ts";
import { chatSocketRoute } from "./chat_socket.ts";
import { completionsRoute } from "./completions.ts";
import {
  conversationRoute,
  conversationsRoute,
  deleteConversationRoute,
  deleteConversationsRoute,
  renameConversationRoute,
} from "./conversations.ts";
import { dashboardRoute } from "./dashboard_page.ts";
import { deliveriesRoute, resolveDeliveryRoute } from "./deliveries.ts";
import { healthRoute, liveRoute } from "./health.ts";
import { logsRoute } from "./logs.ts";
import { deleteMemoryRoute, memoryRoute } from "./memory.ts";
import { metricsRoute } from "./metrics.ts";
import { modelRoute, modelsRoute, trustModelServerRoute } from "./models.ts";
import { nodeSocketRoute } from "./node_socket.ts";
import { describeNodeRoute, invokeNodeRoute, nodeRoute, nodesRoute } from "./nodes.ts";
import { openApiRoute } from "./openapi.ts";
import { pairingCodeRoute, pairRoute } from "./pair.ts";
import { pingRoute } from "./ping.ts";
import type { Route } from "./route.ts";
import { runEventsRoute } from "./run_events.ts";
import { cancelRunRoute, resolveRunRoute, runRoute, runsRoute, startRunRoute } from "./runs.ts";
import { statusRoute } from "./status.ts";
import { createTokenRoute, listTokensRoute, revokeAllTokensRoute, revokeTokenRoute, tokenRoute } from "./tokens.ts";
import { runScheduleRoute, scheduleHistoryRoute, scheduleRoute, schedulesRoute } from "./schedules.ts";
import { callToolRoute, toolRoute, toolsRoute } from "./tools.ts";
import { webhookRoute } from "./webhook.ts";
import { wsTicketRoute } from "./ws_ticket.ts";

/** Every route of the gateway (docs/design/http.md "Middleware"). */
export const ROUTES: readonly Route[] = [
  dashboardRoute,
  healthRoute,
  liveRoute,
  metricsRoute,
  statusRoute,
  pairRoute,
  pingRoute,
  webhookRoute,
  chatRoute,
  completionsRoute,
  chatSocketRoute,
  modelsRoute,
  modelRoute,
  trustModelServerRoute,
  legacyWebhookRoute,
  startRunRoute,
  runsRoute,
  runRoute,
  cancelRunRoute,
  resolveRunRoute,
  runEventsRoute,
  conversationsRoute,
  conversationRoute,
  renameConversationRoute,
  deleteConversationsRoute,
  deleteConversationRoute,
  memoryRoute,
  deleteMemoryRoute,
  toolsRoute,
  toolRoute,
  callToolRoute,
  approvalsRoute,
  approvalRoute,
  answerApprovalRoute,
  approvalRulesRoute,
  revokeApprovalRuleRoute,
  schedulesRoute,
  scheduleRoute,
  scheduleHistoryRoute,
  runScheduleRoute,
  deliveriesRoute,
  resolveDeliveryRoute,
  nodeSocketRoute,
  nodesRoute,
  nodeRoute,
  describeNodeRoute,
  invokeNodeRoute,
  wsTicketRoute,
  pairingCodeRoute,
  listTokensRoute,
  tokenRoute,
  createTokenRoute,
  revokeTokenRoute,
  revokeAllTokensRoute,
  auditRoute,
  verifyAuditRoute,
  logsRoute,
  openApiRoute(() => ROUTES),
];
