// The stream of events. If there is a token, which stays in the tab, the tab itself reads the stream; otherwise one
// worker reads it for all tabs (worker.js), because browsers open few connections to a host.

/** Reads events until stop, and reconnects whenever the stream ends.
 * @param {boolean} begun whether the beginning of the stream is known already @param {Record<string, string>} headers @param
 * {AbortSignal} stop
 * @param {(event: string, data: string) => void} on also 'clock', with the daemon's time when it began, 'away', with the reason, and 'refused', with the code and the reason */
export async function follow(begun, headers, stop, on) {
  for (let pause = 250; !stop.aborted; pause = Math.min(2 * pause, 4000)) {
    try {
      const reply = await fetch('/v1/events', { headers: begun ? { ...headers, 'Last-Event-ID': 'document' } : headers, signal: stop, cache: 'no-store' });
      if (!reply.ok || !reply.body) {
        on('refused', `${reply.status} ${(await reply.json().catch(() => ({}))).reason ?? ''}`);
        if (reply.status === 401 || reply.status === 403) return;
        await new Promise(go => setTimeout(go, pause));
        continue;
      }
      begun = false;
      on('clock', reply.headers.get('Date') ?? '');
      const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
      let rest = '';
      for (;;) {
        const { value, done } = await reader.read();
        if (done) throw new Error('the stream has ended');
        const events = (rest + value).split('\n\n');
        rest = /** @type {string} */ (events.pop());
        for (const e of events) {
          const [, name, data] = /^event: (\w+)\ndata: (.*)$/.exec(e) ?? [];
          if (name) on(name, data);
        }
        pause = 250;
      }
    } catch (e) {
      if (stop.aborted) return;
      on('away', e instanceof Error ? e.message : String(e));
    }
    await new Promise(go => setTimeout(go, pause));
  }
}
