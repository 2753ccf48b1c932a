// The page without scripts is complete. This file adds what a server cannot:
// the theme, the moving clocks, and a stream that rests while nobody looks.
(() => {
  'use strict';
  const root = document.documentElement;
  const byId = (id) => document.getElementById(id);

  // Theme: the system's, until the reader chooses. The server writes what was chosen
  // into the page, from the cookie, so that nothing has to run before the first paint.
  const system = matchMedia('(prefers-color-scheme: dark)');
  const toggle = () => {
    const dark = root.dataset.theme ? root.dataset.theme === 'dark' : system.matches;
    root.dataset.theme = dark ? 'light' : 'dark';
    document.cookie = 'forge-theme=' + root.dataset.theme + '; Path=/; Max-Age=31536000; SameSite=Strict';
  };

  // Clocks: count by the database's time, from the newest reading.
  let skew = 0;
  let heard = Date.now();
  const two = (n) => String(n).padStart(2, '0');
  const coarse = (ms) => { // as coarse in text.go
    const s = Math.floor(Math.max(ms, 0) / 1000);
    if (s < 60) return s + 's';
    if (s < 3600) return Math.floor(s / 60) + 'm ' + two(s % 60) + 's';
    if (s < 86400) return Math.floor(s / 3600) + 'h ' + two(Math.floor(s / 60) % 60) + 'm';
    return Math.floor(s / 86400) + 'd ' + two(Math.floor(s / 3600) % 24) + 'h';
  };
  const say = (mode, at, now) => {
    if (mode === 'ago') return now - at < 1000 ? 'just now' : coarse(now - at) + ' ago';
    if (mode === 'since') return coarse(now - at);
    if (mode === 'left') return (Math.max(at - now, 0) / 1000).toFixed(1) + ' s';
    return at - now < 1000 ? 'now' : 'in ' + coarse(at - now);
  };
  // The reader's own zone, which the server does not know. To ask for it takes a browser
  // longer than all else here.
  let zone;
  const ownZone = () => zone ??= 'Your time, ' + Intl.DateTimeFormat().resolvedOptions().timeZone;
  const days = ['Sun', 'Mon', 'Tue', 'Wed', 'Thu', 'Fri', 'Sat'];
  const local = (ms) => {
    const d = new Date(ms);
    return days[d.getDay()] + ' ' + d.getFullYear() + '-' + two(d.getMonth() + 1) + '-' + two(d.getDate()) +
      ' ' + two(d.getHours()) + ':' + two(d.getMinutes()) + ':' + two(d.getSeconds());
  };
  const tick = () => {
    if (document.hidden || paused) return;
    const now = Date.now() + skew;
    for (const el of document.querySelectorAll('[data-moves]')) move(el);
    for (const el of document.querySelectorAll('time[data-at]')) {
      const text = say(el.dataset.mode, +el.dataset.at, now);
      if (el.textContent !== text) el.textContent = text;
    }
    for (const el of document.querySelectorAll('time[data-local]')) {
      const text = local(+el.dataset.local);
      if (el.textContent !== text) el.textContent = text;
    }
    for (const el of document.querySelectorAll('[data-zone]')) {
      if (el.textContent !== ownZone()) el.textContent = ownZone();
    }
    for (const el of document.querySelectorAll('svg.lease[data-until]')) {
      const left = Math.min(Math.max((+el.dataset.until - now) / Math.max(+el.dataset.lease, 1), 0), 1);
      el.querySelector('.left').setAttribute('width', (100 * left).toFixed(1) + '%');
      el.classList.toggle('low', left < 0.34);
    }
    watch();
  };
  const sync = () => {
    const beat = byId('beat');
    if (!beat || 'stale' in beat.dataset) return;
    const at = +beat.dataset.now;
    skew = at - Date.now();
    for (const [name, age] of new URLSearchParams(beat.dataset.ages)) moved.set(name, at - age);
    announce(new URLSearchParams(beat.dataset.leaders));
  };
  // A change of leader is announced in a corner, over the page, until the reader dismisses it.
  // Changes of several roles, as when a node dies, share the announcement.
  const terms = new Map();
  const announce = (leaders) => {
    for (const [role, led] of leaders) {
      const [term, node] = [led.slice(0, led.indexOf(' ')), led.slice(led.indexOf(' ') + 1)];
      if (terms.has(role) && +term > terms.get(role)) toast(role, term, node);
      terms.set(role, +term);
    }
  };
  const toast = (role, term, node) => {
    const area = byId('toast');
    const box = area.firstChild || area.appendChild(document.createElement('div'));
    const lines = box.querySelector('ul') || box.appendChild(document.createElement('ul'));
    const line = [...lines.children].find((li) => li.dataset.role === role) || lines.appendChild(document.createElement('li'));
    line.dataset.role = role;
    const link = document.createElement('a');
    link.href = '/leaders/' + encodeURIComponent(role) + '/terms/' + term;
    link.textContent = 'What happened';
    const name = role.replaceAll('_', ' ');
    line.replaceChildren(name[0].toUpperCase() + name.slice(1) + ': ' + node + ' became the leader. ', link);
    if (box.querySelector('button')) return;
    const close = box.appendChild(document.createElement('button'));
    close.className = 'button';
    close.textContent = 'Dismiss';
    close.addEventListener('click', () => box.remove());
  };
  // Heartbeats and leases move on each second; their instants come with the beat.
  const moved = new Map();
  const move = (el) => {
    const at = moved.get(el.dataset.moves);
    if (at === undefined) return;
    if (el.matches('svg')) { el.dataset.until = at; return; }
    if (+el.dataset.at === at) return;
    el.dataset.at = at;
    el.dateTime = el.title = new Date(at).toISOString();
  };

  // Pause: the page stays as it is until the reader lets it go on.
  let paused = false;
  const pause = () => {
    if (!streams.size) return;
    paused = !paused;
    byId('conn').setAttribute('aria-pressed', String(paused));
    for (const stream of streams) if (paused) stream.rest(); else wake(stream);
    release();
    if (paused) show('paused', 'Paused'); else show('wait', 'Waiting');
  };

  // Connection: what the reader is told of it.
  const show = (state, text) => {
    const conn = byId('conn');
    if (!conn) return;
    conn.hidden = false;
    if (conn.dataset.state !== state) { conn.dataset.state = state; byId('conn-text').textContent = text; }
    const lost = state === 'lost';
    document.body.classList.toggle('is-lost', lost || state === 'out');
    const offline = byId('offline');
    if (offline && offline.hidden === lost) offline.hidden = !lost;
    if (lost && offline) byId('offline-age').textContent = coarse(Date.now() - heard);
  };
  // A refused stream does not say why. When the session has ended, the page asks for a login and
  // does not try again, until it is shown again: the reader may have logged in elsewhere.
  let out = false;
  const sign = (ended) => {
    out = ended;
    const box = byId('signed-out');
    if (box) {
      box.hidden = !out;
      box.querySelector('a').href = '/login?next=' + encodeURIComponent(location.pathname + location.search);
    }
    if (!out) return;
    for (const stream of streams) stream.rest();
    show('out', 'Signed out');
  };
  const askWhy = async (url) => {
    const answer = await fetch(url, { method: 'HEAD' }).catch(() => null);
    if (answer && answer.status === 401) sign(true);
  };
  const watch = () => {
    if (!streams.size || out) return;
    const silent = Date.now() - heard;
    if (silent > 5000) show('lost', 'Disconnected');
    else if (silent > 2500) show('wait', 'Waiting');
  };

  // Stream stands in for EventSource in htmx's extension: it closes while the
  // tab is hidden, opens again with it, and never gives up.
  const streams = new Set();
  class Stream {
    constructor(url) {
      this.url = url;
      this.listeners = [];
      this.readyState = EventSource.CONNECTING;
      streams.add(this);
      if (!document.hidden && !paused) this.open();
    }
    open() {
      this.rest();
      // It goes on from what the page has got so far.
      const source = this.source = new EventSource(this.url + (this.last ? '&last=' + encodeURIComponent(this.last) : ''));
      source.onopen = () => { this.readyState = EventSource.OPEN; if (this.onopen) this.onopen(); };
      source.onerror = () => {
        this.readyState = EventSource.CONNECTING;
        if (source.readyState !== EventSource.CLOSED) return;
        this.timer = setTimeout(() => this.open(), 1000 + 1000 * Math.random());
        askWhy(this.url);
      };
      for (const [name, fn] of this.listeners) source.addEventListener(name, fn);
    }
    rest() {
      clearTimeout(this.timer);
      if (this.source) this.source.close();
      this.source = null;
    }
    close() { this.rest(); this.readyState = EventSource.CLOSED; streams.delete(this); }
    addEventListener(name, listener) {
      const fn = (event) => {
        heard = Date.now();
        if (out) sign(false);
        if (paused) return;
        this.last = event.lastEventId || this.last;
        deliver(name, event, listener);
      };
      this.listeners.push([name, fn, listener]);
      if (this.source) this.source.addEventListener(name, fn);
    }
    removeEventListener(name, listener) {
      const i = this.listeners.findIndex((l) => l[0] === name && l[2] === listener);
      if (i < 0) return;
      if (this.source) this.source.removeEventListener(name, this.listeners[i][1]);
      this.listeners.splice(i, 1);
    }
  }
  const wake = (stream) => { heard = Date.now(); if (!paused) stream.open(); };

  // Lists whose rows move wait while the pointer is over them: nothing jumps away
  // from under it. What comes meanwhile is shown when it leaves.
  // So do those with selected rows.
  const held = new Map();
  const rests = (part) => pointer && part.matches(':hover') || part.querySelector('.pick :checked');
  const deliver = (name, event, listener) => {
    const part = document.querySelector('[data-steady][sse-swap="' + name + '"]');
    if (part && rests(part)) held.set(part, () => listener(event));
    else { held.delete(part); steadily(() => listener(event)); }
  };
  // What is under the pointer stays there when something above it grows or shrinks.
  let pointer = null; // a finger rests nowhere
  for (const name of ['pointermove', 'pointerover']) {
    document.addEventListener(name, (event) => { pointer = event.pointerType === 'mouse' ? [event.clientX, event.clientY] : null; }, { passive: true });
  }
  document.documentElement.addEventListener('pointerleave', () => { pointer = null; });
  const steadily = (change) => {
    const at = pointer && document.elementFromPoint(...pointer);
    const under = at && at.closest('main a, main button, main [id]');
    const top = under && under.getBoundingClientRect().top;
    change();
    const moved = under && under.isConnected ? under.getBoundingClientRect().top - top : 0;
    if (Math.abs(moved) >= 1) scrollBy(0, moved);
  };
  const release = () => {
    if (paused) return;
    for (const [part, shown] of held) if (!rests(part)) { held.delete(part); shown(); }
  };
  document.addEventListener('pointerover', release);
  document.documentElement.addEventListener('pointerleave', release);
  document.addEventListener('visibilitychange', () => {
    for (const stream of streams) if (document.hidden) stream.rest(); else wake(stream);
  });
  addEventListener('pagehide', () => { for (const stream of streams) stream.rest(); });
  addEventListener('pageshow', (event) => { if (event.persisted) for (const stream of streams) wake(stream); });

  // Output that grows is followed for as long as its end is in view.
  let follow = false;
  const output = () => document.querySelector('[data-follow]');
  document.addEventListener('htmx:sseBeforeMessage', () => {
    const el = output();
    follow = !!el && el.scrollHeight - el.scrollTop - el.clientHeight < 24;
  });
  document.addEventListener('htmx:sseMessage', (event) => {
    if (event.target.id === 'sign') {
      sync();
      if (!paused) show('live', 'Live');
    }
    const el = output();
    if (el && follow) el.scrollTop = el.scrollHeight;
    tick();
  });

  // Keys: those of the links of the navigation after g, and a few more. Forms keep
  // theirs.
  const typing = (el) => el.matches('input, select, textarea, [contenteditable]');
  const rows = () => [...document.querySelectorAll('main tbody tr, main .nodes li, main .cards li, main .node-cards li')]
    .map((row) => row.querySelector('a, button')).filter((el) => el && el.offsetParent);
  const step = (by) => {
    const all = rows();
    const at = all.findIndex((el) => el.closest('tr, li').contains(document.activeElement));
    const next = all[at < 0 ? (by > 0 ? 0 : all.length - 1) : at + by];
    if (next) { next.focus(); next.scrollIntoView({ block: 'nearest' }); }
  };
  const search = () => {
    const field = document.querySelector('main input[type=search], main .filter:not(.range-form) :is(input, select)');
    if (field) field.focus(); else location.href = '/crons#filter';
  };
  const help = (event) => {
    const keys = byId('keys');
    if (!keys || event && (event.ctrlKey || event.metaKey || event.shiftKey)) return;
    if (event) event.preventDefault();
    if (keys.open) keys.close(); else keys.showModal();
  };
  const keys = { '/': search, '?': () => help(), j: () => step(1), k: () => step(-1), p: pause, t: toggle };
  let going = 0;
  document.addEventListener('keydown', (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing || typing(event.target)) return;
    if (event.key !== '?' && document.querySelector('dialog[open]')) return;
    const link = Date.now() - going < 3000 && document.querySelector('nav a[data-key="' + CSS.escape(event.key) + '"]');
    going = 0;
    if (link) link.click();
    else if (event.key === 'g') going = Date.now();
    else if (keys[event.key]) keys[event.key]();
    else return;
    event.preventDefault();
  });

  // The box in the head selects all rows, and shift selects those between two.
  let picked = null;
  const pick = (event) => {
    const box = event.target.closest('.pick input');
    if (!box) return;
    const boxes = [...box.closest('table').querySelectorAll('tbody .pick input')];
    if ('all' in box.dataset) boxes.forEach((other) => { other.checked = box.checked; });
    else if (event.shiftKey && boxes.includes(picked)) {
      const [from, to] = [boxes.indexOf(picked), boxes.indexOf(box)].sort((a, b) => a - b);
      boxes.slice(from, to + 1).forEach((other) => { other.checked = box.checked; });
    }
    picked = box;
    release();
  };
  document.addEventListener('click', pick);
  const offerAll = () => { for (const box of document.querySelectorAll('[data-all]')) box.parentElement.hidden = false; };
  document.addEventListener('htmx:afterSwap', offerAll);

  // The filter suggests terms for its last word; a list of its own completes whole values only.
  const suggest = (field) => {
    const terms = [...field.list.options].map((option) => [option.textContent, option.value]);
    let begun = '';
    field.addEventListener('input', () => {
      const before = field.value.slice(0, field.value.lastIndexOf(' ') + 1);
      if (before === begun) return;
      begun = before;
      field.list.replaceChildren(...terms.map(([about, term]) => new Option(about, before + term)));
    });
  };

  // Copy puts the text of an element on the clipboard. A browser has a clipboard for secure
  // addresses only; elsewhere the text is selected.
  const copy = async (button) => {
    const from = document.querySelector(button.dataset.copy);
    if (!from) return;
    const range = document.createRange();
    range.selectNodeContents(from);
    const name = button.textContent;
    try {
      await navigator.clipboard.writeText(String(from.textContent));
      button.textContent = 'Copied';
    } catch {
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      button.textContent = 'Selected';
    }
    setTimeout(() => { button.textContent = name; }, 2000);
  };

  // An address that names a form focuses its button, so that Enter sends it.
  const aim = () => {
    const button = /^#[\w-]+$/.test(location.hash) && document.querySelector('form' + location.hash + ' button:not([type=button])');
    if (button && document.activeElement === document.body) button.focus();
  };
  addEventListener('hashchange', aim);
  setTimeout(aim); // after the browser has gone to the form itself

  // A form is sent once, even if its button is pressed twice.
  document.addEventListener('submit', (event) => {
    const form = event.target;
    if (form.getAttribute('method') !== 'post') return;
    if ('sent' in form.dataset) { event.preventDefault(); return; }
    form.dataset.sent = '';
    setTimeout(() => { delete form.dataset.sent; }, 3000);
  });

  // A time that is dragged over a drawing becomes that of the page, as by the form of its
  // control. The drawing may change meanwhile: what counts is how it was.
  let drag = null;
  const endDrag = () => {
    if (drag && drag.mark) drag.mark.remove();
    drag = null;
  };
  document.addEventListener('pointerdown', (event) => {
    const control = document.querySelector('[data-narrow]');
    const svg = control && event.target.closest('[data-from] svg:is(.lane-svg, .plot-svg, .chart-svg)');
    if (!svg || event.button || event.pointerType !== 'mouse') return;
    const { from, to } = svg.closest('[data-from]').dataset;
    drag = { box: svg.getBoundingClientRect(), x: event.clientX, from: +from, to: +to, path: control.dataset.narrow };
  });
  document.addEventListener('pointermove', (event) => {
    if (!drag || !drag.mark && Math.abs(event.clientX - drag.x) < 5) return;
    const { box } = drag;
    const x = Math.min(Math.max(event.clientX, box.left), box.right);
    if (!drag.mark) {
      drag.mark = document.body.appendChild(document.createElement('div'));
      drag.mark.className = 'drag';
    }
    drag.end = x;
    Object.assign(drag.mark.style, { left: Math.min(x, drag.x) + 'px', width: Math.abs(x - drag.x) + 'px', top: box.top + 'px', height: box.height + 'px' });
  });
  document.addEventListener('pointerup', () => {
    const done = drag && drag.mark && drag;
    endDrag();
    if (!done) return;
    const at = (x) => done.from + (done.to - done.from) * (x - done.box.left) / done.box.width;
    const ends = [at(done.x), at(done.end)].sort((a, b) => a - b);
    if (ends[1] - ends[0] < 1000) ends[1] = ends[0] + 1000; // the shortest that pages show
    addEventListener('click', (event) => { event.preventDefault(); event.stopPropagation(); }, { capture: true, once: true });
    location.href = done.path + '&from=' + new Date(ends[0]).toISOString() + '&to=' + new Date(ends[1]).toISOString();
  });
  document.addEventListener('dragstart', (event) => { if (drag) event.preventDefault(); });
  document.addEventListener('pointercancel', endDrag);
  document.addEventListener('keydown', (event) => { if (event.key === 'Escape') endDrag(); });
  // The control of the time offers the reader's own zone, which the server does not know.
  const offerZone = (zones) => {
    const own = Intl.DateTimeFormat().resolvedOptions().timeZone;
    if (!own || [...zones.children].some((link) => link.textContent === own)) return;
    const link = zones.appendChild(document.createElement('a'));
    link.href = zones.dataset.otherZone + encodeURIComponent(own);
    link.textContent = own;
    link.dataset.own = '';
  };

  for (const zones of document.querySelectorAll('[data-other-zone]')) offerZone(zones);
  for (const button of document.querySelectorAll('[data-copy]')) {
    button.hidden = false;
    button.addEventListener('click', () => copy(button));
  }
  for (const field of document.querySelectorAll('[data-terms]')) suggest(field);
  offerAll();
  if (location.hash === '#q') search();
  const conn = byId('conn');
  if (conn) conn.addEventListener('click', pause);
  for (const id of ['help', 'keys-close']) if (byId(id)) byId(id).addEventListener('click', help);
  for (const field of document.querySelectorAll('[data-submits]')) {
    field.addEventListener('change', () => field.form.requestSubmit());
    field.form.querySelector('button').hidden = true;
  }
  const button = byId('theme');
  button.hidden = false;
  button.addEventListener('click', toggle);
  const growing = document.querySelector('[data-follow][data-running]');
  if (growing) growing.scrollTop = growing.scrollHeight; // what comes next is what the reader came for
  sync();
  tick();
  setInterval(tick, 200);
  if (window.htmx) {
    htmx.createEventSource = (url) => new Stream(url);
    document.body.setAttribute('hx-ext', 'sse,morph'); // htmx ran before its extensions
    htmx.process(document.body);
  }
})();
