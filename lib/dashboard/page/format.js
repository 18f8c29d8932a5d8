/**
 * A count or measure in few characters: 0.25, 12.3, 1,234, 1.2M.
 * @param {number} value
 */
export function formatNumber(value) {
  if (!Number.isFinite(value)) return "-";
  if (Math.abs(value) >= 1e6) return `${trimmed(value / 1e6, 1)}M`;
  if (Math.abs(value) >= 100) return Math.round(value).toLocaleString("en");
  return trimmed(value, Math.abs(value) >= 10 ? 1 : 2);
}

/** @param {number} seconds a duration, such as "45 s", "3 min" or "2 d 4 h" */
export function formatDuration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86_400)} d ${Math.floor((whole % 86_400) / 3600)} h`;
}

/** @param {number} ms how long something took, such as "12 ms" or "3.4 s" */
export function formatMs(ms) {
  if (!Number.isFinite(ms)) return "-";
  return ms < 1000 ? `${ms < 10 ? trimmed(ms, 1) : Math.round(ms)} ms` : `${trimmed(ms / 1000, 1)} s`;
}

/** @param {number} bytes */
export function formatBytes(bytes) {
  return Number.isFinite(bytes) ? `${formatNumber(bytes / 1_048_576)} MiB` : "-";
}

/** @param {number} bytes of a file, such as "12 KiB" */
export function formatSize(bytes) {
  return bytes < 1024 ? `${bytes} B` : bytes < 1_048_576 ? `${formatNumber(bytes / 1024)} KiB` : formatBytes(bytes);
}

const TIME = new Intl.DateTimeFormat(undefined, {
  year: "numeric",
  month: "short",
  day: "numeric",
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  timeZoneName: "short",
});

/** @param {string} time ISO 8601, as date and time in the reader's zone, which is named */
export function formatTime(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? time : TIME.format(date);
}

/** @param {unknown} error what was thrown, as words for the page */
export function messageOf(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * @param {number} value
 * @param {number} digits
 */
function trimmed(value, digits) {
  return String(Number(value.toFixed(digits)));
}
