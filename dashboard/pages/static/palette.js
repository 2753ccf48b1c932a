// The command palette: the results of /search in a dialog over any page. Without this file, the
// link that opens it leads to /search.
(() => {
  'use strict';
  const byId = (id) => document.getElementById(id);
  let dialog, field, list, status;
  let asked = null; // the request under way
  let timer = 0;
  let going = false; // Enter came before the results of what was typed

  const options = () => [...list.querySelectorAll('[role=option]')];
  const choose = (option) => {
    for (const other of list.querySelectorAll('[aria-selected=true]')) other.setAttribute('aria-selected', 'false');
    if (!option) { field.removeAttribute('aria-activedescendant'); return; }
    option.setAttribute('aria-selected', 'true');
    field.setAttribute('aria-activedescendant', option.id);
    option.scrollIntoView({ block: 'nearest' });
  };
  const chosen = () => list.querySelector('[aria-selected=true]');
  const move = (by) => {
    const all = options();
    if (all.length) choose(all[(all.indexOf(chosen()) + by + all.length) % all.length]);
  };

  // A reader whose session has ended goes on at the page, which leads to the login and back.
  const leave = () => { location.href = '/search?' + new URLSearchParams({ q: field.value }); };
  const ask = async () => {
    timer = 0;
    if (asked) asked.abort();
    const mine = asked = new AbortController();
    try {
      const answer = await fetch('/search/options?' + new URLSearchParams({ q: field.value }), { signal: mine.signal, redirect: 'manual' });
      if (answer.type === 'opaqueredirect') { leave(); return; }
      const html = await answer.text();
      if (mine !== asked) return;
      if (!answer.ok) throw new Error(answer.statusText);
      list.innerHTML = html; // drawn by the server, which escapes what it shows
      field.setAttribute('aria-expanded', 'true');
      const count = options().length;
      choose(options()[0]);
      asked = null;
      if (going && chosen()) chosen().click();
      going = false;
      status.textContent = count === 0 ? 'Nothing matches.' : count === 1 ? '1 result' : count + ' results';
    } catch (error) {
      if (error.name === 'AbortError' || mine !== asked) return;
      asked = null;
      going = false;
      list.replaceChildren();
      choose(null);
      status.textContent = 'The search failed. Try again.';
    }
  };

  // Results of what is no longer in the field are not shown.
  const forget = () => {
    if (asked) asked.abort();
    clearTimeout(timer);
    asked = null;
    timer = 0;
    going = false;
  };

  const open = () => {
    if (dialog.open) { field.select(); return; }
    for (const other of document.querySelectorAll('dialog[open]')) other.close();
    field.value = '';
    dialog.showModal();
    field.focus();
    ask();
  };
  const keys = {
    ArrowDown: () => move(1),
    ArrowUp: () => move(-1),
    Enter: () => {
      const option = chosen();
      if (timer || asked) going = true;
      else if (option) option.click();
    },
  };

  document.addEventListener('keydown', (event) => {
    if (!dialog || event.isComposing || event.altKey || event.shiftKey) return;
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === 'k') {
      event.preventDefault();
      open();
    }
  });

  const opener = byId('find');
  if (!opener) return;
  [dialog, field, list, status] = ['palette', 'palette-field', 'palette-list', 'palette-status'].map(byId);
  opener.dataset.keys = /Mac|iPhone|iPad/.test(navigator.platform) ? '⌘ K' : 'Ctrl K';
  opener.setAttribute('aria-keyshortcuts', 'Control+K Meta+K');
  opener.addEventListener('click', (event) => {
    if (event.ctrlKey || event.metaKey || event.shiftKey) return; // another tab
    event.preventDefault();
    open();
  });
  field.addEventListener('input', () => {
    forget();
    timer = setTimeout(ask, 80);
  });
  field.addEventListener('keydown', (event) => {
    if (event.isComposing || !keys[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    keys[event.key]();
  });
  list.addEventListener('click', (event) => { if (event.target.closest('[role=option]')) dialog.close(); });
  list.addEventListener('pointermove', (event) => {
    const option = event.target.closest('[role=option]');
    if (option && option !== chosen()) choose(option);
  });
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  dialog.addEventListener('close', () => {
    forget();
    list.replaceChildren();
    choose(null);
    field.setAttribute('aria-expanded', 'false');
  });
})();
