// What checks of operators have found, live ones while the run goes on: docs/checking.md.

import {followPart} from '/live.js';
import {ask} from '/server.js';
import {$, count, element, many, numberOf, rankText, show} from '/text.js';

const VERDICTS = ['fail', 'crashed', 'error', 'warning', 'undecided', 'skip', 'pass'];
const WRONG = ['fail', 'crashed', 'error'];
const MOST = 200;

// What the address says of checks.
const addressed = () => Object.fromEntries(['job', 'verdict', 'name', 'row'].map(
    (part) => [part, new URLSearchParams(location.search).get(`check_${part}`) ?? '']));

function remember(parts) {
  const address = new URLSearchParams(location.search);
  for (const [part, value] of Object.entries(parts)) {
    if (value)
      address.set(`check_${part}`, value);
    else
      address.delete(`check_${part}`);
  }
  history.replaceState(null, '', `?${address}`);
}

const idOf = (row) => `${row.item.split('/').slice(0, 2).join('/')}/${row.name}`;

const goesOn = (job) => ['open', 'sealed'].includes(job?.state);

export class Checks {
  // heard: {opened({rank, step, record}), failed(work)}.
  constructor(heard) {
    this.heard = heard;
    this.asked = addressed();
    this.turn = 0;
    $('check-job').addEventListener('change', () => this.choose({job: $('check-job').value}));
    let typing = 0;
    $('check-name').addEventListener('input', () => {
      clearTimeout(typing);
      typing = setTimeout(() => this.choose({name: $('check-name').value.trim()}), 250);
    });
    $('check-rows').addEventListener('keydown', (event) => this.key(event));
  }

  choose(parts) {
    this.asked = {...this.asked, ...parts, row: ''};
    remember(this.asked);
    return this.heard.failed(() => this.begin());
  }

  // Of a run: from its first result on.
  async present(run) {
    if (this.run !== undefined && this.run !== run) {
      this.asked = {job: '', verdict: '', name: '', row: ''};
      remember(this.asked);
    }
    this.run = run;
    $('check-name').value = this.asked.name;
    await this.begin();
  }

  // There may be a job, or more results; nothing happens while they are followed already.
  async grown() {
    if (this.run !== undefined && !this.following) await this.begin();
  }

  async begin() {
    const turn = ++this.turn;
    this.next = 0;
    this.counts = {};
    this.rows = [];
    this.leftOut = 0;
    this.following = false;
    await this.read(turn);
    if (this.following) followPart(() => turn === this.turn && this.read(turn).then(() => this.following));
  }

  async read(turn) {
    const {job, verdict, name} = this.asked;
    for (let more = true; more;) {
      const parameters = {
        run: this.run,
        job,
        verdict: verdict === 'all' ? '' : verdict || 'wrong',
        name,
        after: this.next || '',
        most: MOST - this.rows.length
      };
      if (MOST === this.rows.length) parameters.most = 0;
      const {answer} = await ask('verdicts', parameters);
      if (turn !== this.turn) return;
      this.jobs = answer.jobs;
      this.job = answer.jobs.find((each) => each.job === answer.job);
      for (const [word, calls] of Object.entries(answer.counts ?? {}))
        this.counts[word] = (this.counts[word] ?? 0) + calls;
      this.rows.push(...(answer.rows ?? []));
      this.leftOut += answer.left_out ?? 0;
      this.next = answer.next ?? 0;
      more = answer.more ?? false;
      this.draw(answer.rows ?? []);
    }
    this.following = goesOn(this.job);
  }

  draw(fresh) {
    $('checks').hidden = !this.job;
    if (!this.job) return;
    const {job} = this, wrong = WRONG.reduce((sum, word) => sum + (this.counts[word] ?? 0), 0);
    $('checks-count').textContent = `${count(job.results)} of ${many(job.items, 'call')} checked, ${
        wrong ? `${count(wrong)} wrong` :
                'none wrong'}${goesOn(job) ? '; more may come' : ''}`;
    this.drawJobs();
    this.drawFilter(wrong);
    if (fresh.length === this.rows.length) $('check-rows').replaceChildren();
    $('check-rows').append(...fresh.map((row) => this.card(row)));
    const none = this.rows.length === 0;
    $('check-none').hidden = !none && !this.leftOut;
    $('check-none').textContent = none ? 'No call has such a verdict.' :
                                         `and ${many(this.leftOut, 'call')} more; a name or a verdict shows fewer`;
  }

  drawJobs() {
    const said = this.jobs.map(({job, title, state}) => `${job} ${title} ${state}`).join('\n');
    $('check-job-box').hidden = this.jobs.length < 2;
    if (said === this.saidJobs) return;
    this.saidJobs = said;
    const options =
        this.jobs.map(({job, title, state}) => element('option', `${job}: ${title}, ${state}`, {value: String(job)}));
    $('check-job').replaceChildren(...options);
    $('check-job').value = String(this.job.job);
  }

  drawFilter(wrong) {
    const chosen = this.asked.verdict || 'wrong',
          all = Object.values(this.counts).reduce((sum, calls) => sum + calls, 0);
    const choices = [['wrong', wrong], ...VERDICTS.map((word) => [word, this.counts[word] ?? 0]), ['all', all]].filter(
        ([word, calls]) => calls || word === 'wrong' || word === chosen);
    const held = document.activeElement?.dataset?.verdict;
    $('check-filter').replaceChildren(...choices.map(([word, calls]) => {
      const button = element(
          'button', `${word} ${count(calls)}`,
          {type: 'button', 'aria-pressed': String(word === chosen), 'data-verdict': word});
      button.addEventListener('click', () => this.choose({verdict: word === 'wrong' ? '' : word}));
      return button;
    }));
    if (held) $('check-filter').querySelector(`[data-verdict="${held}"]`)?.focus();
  }

  card(row) {
    const item = element('li', undefined, {class: WRONG.includes(row.verdict) ? 'wrong' : ''}),
          fold = element('details'), head = element('summary');
    const worst = row.worst_index ?
        `${show(numberOf(row.worst_output))}, should be ${show(numberOf(row.worst_golden))}` :
        row.reason ?? '';
    head.append(
        element('span', row.verdict, {class: 'badge'}), ' ', element('code', row.name),
        element('span', ` step ${row.step}, ${rankText(row.rank)}`, {class: 'hint'}), ' ', element('span', worst));
    fold.append(head);
    const id = idOf(row);
    fold.addEventListener('toggle', () => {
      if (fold.open && fold.childElementCount === 1) fold.append(...this.details(row));
      if (fold.open)
        this.asked.row = id;
      else if (this.asked.row === id)
        this.asked.row = '';
      remember({row: this.asked.row});
    });
    if (id === this.asked.row) {
      fold.open = true;
      if (!this.arrived) setTimeout(() => head.scrollIntoView({block: 'nearest'}));
      this.arrived = true;
    }
    item.append(fold);
    return item;
  }

  details(row) {
    const list = element('dl');
    const say = (term, text, mono) =>
        text && list.append(element('dt', term), element('dd', text, mono ? {class: 'mono'} : {}));
    say('Operator', row.operation, true);
    say('Argument',
        [row.name, row.dtype, row.shape && `[${row.shape.join(', ')}]`, row.inputs && `inputs ${row.inputs}`]
            .filter(Boolean)
            .join(' · '),
        true);
    if (row.worst_index)
      say('Worst element',
          `[${row.worst_index.join(', ')}] is ${show(numberOf(row.worst_output))}, should be ${
              show(numberOf(row.worst_golden))}`);
    if (row.rule)
      say('Decided by',
          `${[row.policy, row.rule].filter(Boolean).join(': ')}${
              row.measured === undefined ? '' :
                                           ` ${show(numberOf(row.measured))}, limit ${show(numberOf(row.limit))}`}`);
    say('Reason', row.reason);
    say('Called at', row.stack, true);
    const tools = element('p', undefined, {class: 'buttons'});
    if (row.repeat) {
      list.append(element('dt', 'Repeat'), element('dd'));
      list.lastChild.append(element('code', row.repeat, {class: 'repeat'}));
      const copy = element('button', 'Copy the command', {type: 'button'});
      copy.addEventListener('click', () => this.heard.failed(async () => {
        await navigator.clipboard.writeText(row.repeat);
        copy.textContent = 'Copied';
        setTimeout(() => (copy.textContent = 'Copy the command'), 1500);
      }));
      tools.append(copy);
    }
    const open = element('button', 'Open the record', {type: 'button'});
    open.addEventListener(
        'click', () => this.heard.opened({rank: row.rank, step: Number(row.step), record: row.record}));
    if (row.step !== '') tools.append(open);
    return [list, tools];
  }

  // Arrow keys, Home and End go from one verdict to another.
  key(event) {
    const heads = [...$('check-rows').querySelectorAll('summary')], at = heads.indexOf(document.activeElement);
    const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: heads.length - 1}[event.key];
    if (at < 0 || to === undefined) return;
    event.preventDefault();
    heads[Math.min(Math.max(to, 0), heads.length - 1)].focus();
  }
}
