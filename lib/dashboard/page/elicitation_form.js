import { element } from "./dom.js";
import { exactLine, exactText } from "./exact_text.js";

/** @typedef {import("../../base/records/elicitation.ts").FormField} Field */
/** @typedef {import("../../base/records/elicitation.ts").FormContent[string]} Value */
/** @typedef {{ root: HTMLElement, read: () => Value | undefined }} Control `read` gives undefined for a field that is left empty */
/** @typedef {Pick<import("../../base/records/approval.ts").Approval, "server" | "agent" | "message" | "schema" | "url" | "tool">} Asked */

const INPUT_TYPES = { email: "email", uri: "url", date: "date", "date-time": "text" };

/**
 * Makes the question of a running call to a person: the words of whoever asks, marked as such, and a form made from its schema, or the
 * address in full, which only the person opens.
 * @param {Asked} asked
 */
export function createElicitationForm({ server, agent, message = "", schema, url, tool }) {
  /** @type {Map<string, Control>} */
  const controls = new Map();
  for (const [name, field] of Object.entries(schema?.properties ?? {})) {
    controls.set(name, createControl(name, field, schema?.required.includes(name) === true));
  }
  return {
    parts: [
      element(
        "p",
        {},
        ...(agent === true
          ? ["The agent asks. Its words may come from what it has read, and your answer goes to the model:"]
          : [
            ...(server === undefined ? ["The program"] : ["The server ", element("strong", {}, exactLine(server))]),
            ` asks while ${exactLine(tool)} runs. These are its words, and your answer goes to it:`,
          ]),
      ),
      element("blockquote", { class: "ask-words" }, exactText(message)),
      ...(url === null || url === undefined ? [] : addressParts(url)),
      ...[...controls.values()].map(({ root }) => root),
    ],
    /** The fields that the person filled in; undefined where there is only an address. */
    read() {
      if (schema === null || schema === undefined) return undefined;
      /** @type {Record<string, Value>} */
      const content = {};
      for (const [name, { read }] of controls) {
        const value = read();
        if (value !== undefined) content[name] = value;
      }
      return content;
    },
  };
}

/** @param {string} url */
function addressParts(url) {
  const host = URL.parse(url)?.host ?? "";
  return [
    element("p", {}, "It wants you to open this address, at ", element("strong", {}, exactLine(host)), ":"),
    element("code", { class: "ask-address" }, exactLine(url)),
    element(
      "p",
      {},
      element("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, "Open it in a new tab"),
      ", if you trust it. Postern does not see what you do there.",
    ),
  ];
}

/**
 * @param {string} name
 * @param {Field} field
 * @param {boolean} required
 * @returns {Control}
 */
function createControl(name, field, required) {
  switch (field.type) {
    case "boolean":
      return createSelect(name, field, {
        required,
        choices: [{ const: "true", title: "Yes" }, { const: "false", title: "No" }],
        toValue: (text) => text === "true",
      });
    case "array":
      return createChecks(name, field, required);
    case "string":
      if (field.oneOf === undefined) return createText(name, field, required);
      return createSelect(name, field, { required, choices: field.oneOf, toValue: (text) => text });
    case "number":
    case "integer":
      return createNumber(name, field, required);
  }
}

/**
 * @param {string} name
 * @param {Field} field
 * @param {{ required: boolean, choices: readonly { const: string, title: string }[], toValue: (text: string) => Value }} options
 */
function createSelect(name, field, { required, choices, toValue }) {
  const select = element(
    "select",
    { required },
    element("option", { value: "" }, required ? "Choose" : "No answer"),
    // The place of a choice stands for it: a choice may be an empty text
    ...choices.map(({ title }, i) => element("option", { value: String(i) }, exactLine(title))),
  );
  const chosen = choices.findIndex((choice) => choice.const === String(field.default));
  if (field.default !== undefined && chosen !== -1) select.value = String(chosen);
  return {
    root: labelled(name, field, select, required),
    read: () => {
      const choice = select.value === "" ? undefined : choices[Number(select.value)];
      return choice === undefined ? undefined : toValue(choice.const);
    },
  };
}

/**
 * @param {string} name
 * @param {Extract<Field, { type: "array" }>} field
 * @param {boolean} required
 */
function createChecks(name, field, required) {
  const wanted = field.default ?? [];
  const boxes = field.items.anyOf.map(({ const: value, title }) => {
    const input = element("input", { type: "checkbox", checked: wanted.includes(value) });
    return { value, input, root: element("label", { class: "choice" }, input, exactLine(title)) };
  });
  const { minItems: from, maxItems: to } = field;
  const range = [from === undefined ? "" : `at least ${from}`, to === undefined ? "" : `at most ${to}`].filter(Boolean);
  return {
    root: element(
      "fieldset",
      { class: "ask-choices" },
      element("legend", {}, titleOf(name, field)),
      ...hintsOf(field, range.join(", ")),
      ...boxes.map(({ root }) => root),
    ),
    read: () => {
      const values = boxes.filter(({ input }) => input.checked).map(({ value }) => value);
      return values.length === 0 && !required ? undefined : values;
    },
  };
}

/**
 * @param {string} name
 * @param {Extract<Field, { type: "string" }>} field
 * @param {boolean} required
 */
function createText(name, field, required) {
  const input = element("input", {
    type: field.format === undefined ? "text" : INPUT_TYPES[field.format],
    required,
    autocomplete: "off",
    maxLength: field.maxLength ?? 10_000,
    ...(field.minLength === undefined ? {} : { minLength: field.minLength }),
    ...(field.format === "date-time" ? { placeholder: "2026-01-31T09:30:00Z" } : {}),
    value: field.default ?? "",
  });
  return {
    root: labelled(name, field, input, required),
    read: () => (input.value === "" && !required ? undefined : input.value),
  };
}

/**
 * @param {string} name
 * @param {Extract<Field, { type: "number" | "integer" }>} field
 * @param {boolean} required
 */
function createNumber(name, field, required) {
  const { minimum: from, maximum: to } = field;
  const input = element("input", {
    type: "number",
    required,
    step: field.type === "integer" ? "1" : "any",
    ...(from === undefined ? {} : { min: String(from) }),
    ...(to === undefined ? {} : { max: String(to) }),
    value: field.default === undefined ? "" : String(field.default),
  });
  const range = [from === undefined ? "" : `from ${from}`, to === undefined ? "" : `to ${to}`].filter(Boolean);
  return {
    root: labelled(name, field, input, required, range.join(" ")),
    read: () => (input.value === "" ? undefined : Number(input.value)),
  };
}

/**
 * @param {string} name
 * @param {Field} field
 * @param {HTMLElement} control
 * @param {boolean} required
 * @param {string} [range]
 */
function labelled(name, field, control, required, range = "") {
  const title = `${titleOf(name, field)}${required ? "" : " (optional)"}`;
  return element("label", { class: "field" }, element("span", {}, title), ...hintsOf(field, range), control);
}

/**
 * @param {string} name
 * @param {Field} field
 */
function titleOf(name, { title }) {
  return exactLine(title ?? name);
}

/**
 * @param {Field} field
 * @param {string} range
 */
function hintsOf({ description }, range) {
  return [description ?? "", range].filter((text) => text !== "").map((text) =>
    element("span", { class: "hint" }, exactLine(text))
  );
}
