// Drives the real `useChat` hook in jsdom against a running product, as one browser would.
//
//   node use_chat.mjs BASE_URL  <  commands
//
// One JSON command a line on standard input; one JSON answer a line on standard output:
//   {"do": "open", "id", "headers", "messages"?, "resume"?}   mount the hook on a session
//   {"do": "send", "text"}                                    sendMessage
//   {"do": "approve", "id", "approved", "reason"?}            addToolApprovalResponse
//   {"do": "output", "tool", "id", "output"}                  addToolOutput
//   {"do": "wait", "status"}                                  wait until the hook is in a status
//   {"do": "settle", "text"}                                  wait until it is ready and shows a text
//   {"do": "close"}                                           unmount
import { createInterface } from 'node:readline';
import { createRequire } from 'node:module';
import process from 'node:process';
import { pathToFileURL } from 'node:url';

const require = createRequire(import.meta.url);
const { JSDOM } = require('jsdom');

const dom = new JSDOM('<!doctype html><div id="root"></div>', { url: process.argv[2] });
globalThis.window = dom.window;
globalThis.document = dom.window.document;
globalThis.IS_REACT_ACT_ENVIRONMENT = true;

const load = name => import(pathToFileURL(require.resolve(name)));
const React = (await load('react')).default;
const { createRoot } = await load('react-dom/client');
const { act } = React;
const { useChat } = await load('@ai-sdk/react');
const ai = await load('ai');

let chat;
let root;
let errors = [];
let requests = [];

function App({ id, headers, messages, resume }) {
  chat = useChat({
    id,
    messages,
    resume,
    sendAutomaticallyWhen: options =>
      ai.lastAssistantMessageIsCompleteWithApprovalResponses(options) ||
      ai.lastAssistantMessageIsCompleteWithToolCalls(options),
    transport: new ai.DefaultChatTransport({
      api: process.argv[2] + '/api/chat',
      headers,
      prepareSendMessagesRequest: ({ id, messages, trigger }) => {
        const body = { id, trigger, messages: messages.slice(-1) };
        requests.push(body);
        return { body };
      },
    }),
    onError: error => errors.push(String(error.message)),
  });
  return null;
}

async function until(holds) {
  const end = Date.now() + 30_000;
  while (!holds()) {
    if (Date.now() > end) throw new Error('waited in vain; status is ' + chat.status);
    await act(() => new Promise(resolve => setTimeout(resolve, 10)));
  }
}

const actions = {
  async open(command) {
    root = createRoot(document.getElementById('root'));
    errors = [];
    requests = [];
    await act(async () => root.render(React.createElement(App, command)));
  },
  async send({ text }) {
    await act(async () => void chat.sendMessage({ text }));
  },
  async approve({ id, approved, reason }) {
    await act(async () => void chat.addToolApprovalResponse({ id, approved, reason }));
  },
  async output({ tool, id, output }) {
    await act(async () => void chat.addToolOutput({ tool, toolCallId: id, output }));
  },
  async wait({ status }) {
    await until(() => chat.status === status);
  },
  async settle({ text }) {
    await until(() => chat.status === 'ready' && JSON.stringify(chat.messages).includes(text));
  },
  async close() {
    await act(async () => root.unmount());
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  try {
    await actions[command.do](command);
    const shown = { status: chat?.status, messages: chat?.messages, errors, requests };
    console.log(JSON.stringify(shown));
  } catch (error) {
    console.log(JSON.stringify({ failed: String(error.stack ?? error) }));
  }
}
process.exit(0);
