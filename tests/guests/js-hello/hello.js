// A tool in JavaScript: one function tool that greets, one custom tool that gives back its raw text, one that fails.
// What a component throws is the contract's `failure` record.

const claims = { readOnly: true, idempotent: true, destructive: false, openWorld: false };

export const tools = {
  configSchema() {
    return JSON.stringify({ type: 'object', properties: { greeting: { type: 'string' } }, additionalProperties: false });
  },

  definitions() {
    const schema = { type: 'object', properties: { name: { type: 'string' } }, required: ['name'] };
    return [
      { name: 'greet', description: 'Greets.', input: { tag: 'json-schema', val: JSON.stringify(schema) }, claims },
      { name: 'echo', description: 'Gives back its text.', input: { tag: 'text' }, claims },
      { name: 'fail', description: 'Fails.', input: { tag: 'text' }, claims },
    ];
  },

  invoke(invocation) {
    switch (invocation.tool) {
      case 'greet': {
        const greeting = JSON.parse(invocation.config).greeting ?? 'Hello';
        const { name } = JSON.parse(invocation.input);
        return [{ tag: 'json', val: JSON.stringify({ text: `${greeting}, ${name}!`, attempt: invocation.attempt }) }];
      }
      case 'echo':
        return [{ tag: 'text', val: invocation.input }];
      default:
        throw { kind: 'not-found', message: `no ${invocation.input}`, details: '{"from":"javascript"}' };
    }
  },
};
