/** The list of runs: live, searched, sorted, grouped by seed; with the keyboard too. */

import { element, replace, setText, throttled } from "../parts/dom.js";
import { grouped, matches, sorted } from "../parts/run_list.js";
import { COLUMNS, rowElement } from "../parts/run_rows.js";

const PAGE = 100;
const REDRAW_MILLISECONDS = 400;
const AGES_MILLISECONDS = 30_000;

export async function show(root, parameters, page) {
  const list = new RunList(root, parameters, page);
  await list.load();
  return () => list.close();
}

class RunList {
  constructor(root, parameters, page) {
    this.root = root;
    this.page = page;
    this.rows = new Map();
    this.selected = new Set();
    this.open = new Set();
    this.elements = new Map();
    this.search = parameters.q ?? "";
    this.sort = (parameters.sort ?? "started").replace(/^-/, "");
    this.isDescending = parameters.sort ? parameters.sort.startsWith("-") : true;
    this.isGrouped = parameters.groups !== "no";
    this.limit = PAGE;
    this.draw = throttled(() => this.render(), REDRAW_MILLISECONDS);
    this.build();
  }

  async load() {
    await this.fetch();
    this.socket = this.page.socket("/api/live", {
      open: () => {
        this.socket.send({ watch: "runs" });
        this.fetch();
      },
      message: (message) => message.type === "rows" && this.take(message),
    });
    this.timer = setInterval(() => {
      this.elements.clear();
      this.draw();
    }, AGES_MILLISECONDS);
    this.onKey = (event) => this.key(event);
    document.addEventListener("keydown", this.onKey);
  }

  async fetch() {
    const { runs, runs_dir, problem } = await this.page.api("/api/runs");
    this.folder = runs_dir;
    this.problem = problem;
    this.rows = new Map(runs.map((row) => [row.name, row]));
    this.render();
  }

  take({ rows, gone }) {
    for (const row of rows) this.rows.set(row.name, row);
    for (const name of gone) {
      this.rows.delete(name);
      this.selected.delete(name);
    }
    this.draw();
  }

  close() {
    this.draw.cancel();
    clearInterval(this.timer);
    document.removeEventListener("keydown", this.onKey);
    this.socket?.close();
  }

  /** Make what stays: the head, the search and the frame of the table. */
  build() {
    this.counts = element("span", { class: "quiet", role: "status" });
    this.searchBox = element("input", {
      type: "search", placeholder: "Search: cartpole state:running", "aria-label": "Search runs",
      title: "Press / to search", class: "search", on: { input: () => this.setSearch() },
    });
    this.searchBox.value = this.search;
    const groups = element("input", { type: "checkbox", id: "groups", on: { change: () => this.setGrouped(groups.checked) } });
    groups.checked = this.isGrouped;
    this.compare = element("a", { class: "button primary" }, "Compare");
    this.head = element("tr", {});
    this.body = element("tbody", {});
    this.more = element("button", { on: { click: () => this.showMore() } }, "Show more");
    this.table = element("div", { class: "table-box runs" }, element("table", {}, element("thead", {}, this.head), this.body));
    this.bar = element("div", { class: "view-head" }, element("h1", {}, "Runs"), this.counts, element("span", { class: "spacer" }),
      this.compare, element("span", { class: "field" }, groups, element("label", { for: "groups" }, "Group seeds")), this.searchBox);
    this.empty = element("div", { class: "empty" });
    replace(this.root, this.bar, this.table, this.empty, element("p", { class: "more" }, this.more));
    this.drawHead();
  }

  drawHead() {
    const cells = COLUMNS.map(([key, title, kind]) => {
      if (key === null) return element("th", { scope: "col", class: kind }, title);
      const isSorted = key === this.sort;
      const sign = isSorted ? (this.isDescending ? " ↓" : " ↑") : "";
      const button = element("button", { class: "plain", "data-key": key, on: { click: () => this.setSort(key) } }, title + sign);
      const order = isSorted ? (this.isDescending ? "descending" : "ascending") : null;
      return element("th", { scope: "col", class: kind || null, "aria-sort": order }, button);
    });
    replace(this.head, element("th", { scope: "col", class: "select" }, element("span", { class: "visually-hidden" }, "Select")), ...cells);
  }

  render() {
    this.draw.cancel();
    const found = [...this.rows.values()].filter((row) => matches(row, this.search));
    const groups = this.isGrouped ? grouped(found) : found.map((row) => ({ row, members: [] }));
    const members = new Map(groups.map((group) => [group.row, group.members]));
    const lines = [];
    for (const row of sorted([...members.keys()], this.sort, this.isDescending).slice(0, this.limit)) {
      lines.push(this.line(row, members.get(row), false));
      if (this.open.has(row.key)) lines.push(...members.get(row).map((member) => this.line(member, [], true)));
    }
    this.place(lines);
    this.body.parentElement.classList.toggle("has-tags", found.some((row) => row.tags?.length > 0));
    this.drawCounts(found, groups.length);
    this.drawEmpty(found.length);
  }

  /** The element of a line: made anew only where what it shows has changed. */
  line(row, members, isMember) {
    const names = members.length ? members.map((member) => member.name) : [row.name];
    const isSelected = names.every((name) => this.selected.has(name));
    const isOpen = row.key ? this.open.has(row.key) : null;
    const key = row.key ?? row.name;
    const state = JSON.stringify([row, isSelected, isOpen, isMember]);
    const known = this.elements.get(key);
    if (known?.state === state) return known.node;
    const node = rowElement(row, {
      isSelected, isOpen, isMember,
      select: (isWanted) => this.select(names, isWanted),
      fold: () => this.fold(row.key),
    });
    node.dataset.key = key;
    this.elements.set(key, { state, node });
    return node;
  }

  /** Put the lines into the table, touching only what moved; the focus stays on its run. */
  place(lines) {
    const active = document.activeElement;
    const key = this.body.contains(active) ? active.closest("tr").dataset.key : null;
    const isSame = lines.length === this.body.children.length && lines.every((node, place) => this.body.children[place] === node);
    if (isSame) return;
    const isBox = active?.type === "checkbox";
    this.body.replaceChildren(...lines);
    if (key === null) return;
    const again = lines.find((node) => node.dataset.key === key);
    again?.querySelector(isBox ? "input" : ".row-link")?.focus();
  }

  drawCounts(found, lines) {
    const running = found.filter((row) => row.state === "running").length;
    const all = this.rows.size === found.length ? `${found.length}` : `${found.length} of ${this.rows.size}`;
    setText(this.counts, this.rows.size ? `${all}${running ? `, ${running} running` : ""}` : "");
    this.more.hidden = lines <= this.limit;
    setText(this.more, `Show ${Math.min(PAGE, lines - this.limit)} more of ${lines - this.limit}`);
    const names = [...this.selected].filter((name) => this.rows.has(name));
    this.compare.hidden = names.length < 2;
    setText(this.compare, `Compare ${names.length}`);
    this.compare.href = `#/compare?runs=${names.map(encodeURIComponent).join(",")}`;
  }

  drawEmpty(found) {
    const isEmpty = this.rows.size === 0;
    this.table.hidden = found === 0;
    this.bar.hidden = isEmpty;
    this.empty.hidden = found > 0;
    const text = element("p", {});
    if (this.problem) replace(this.empty, element("p", { class: "problem" }, this.problem));
    else if (isEmpty) {
      replace(this.empty, element("h1", {}, "No runs yet"), element("p", {}, `in ${this.folder}. Begin one in a terminal:`),
        element("pre", { class: "command" }, "scramjet train cartpole"), element("p", {}, "It appears here as soon as it starts."));
    } else replace(this.empty, text, element("p", {}, "No run matches the search."));
  }

  setSearch() {
    this.search = this.searchBox.value;
    this.limit = PAGE;
    this.render();
    this.remember();
  }

  setSort(key) {
    const isNumber = !["name", "state", "env", "algorithm", "tags"].includes(key);
    this.isDescending = key === this.sort ? !this.isDescending : isNumber;
    this.sort = key;
    this.drawHead();
    this.head.querySelector(`[data-key="${key}"]`).focus();
    this.render();
    this.remember();
  }

  setGrouped(isGrouped) {
    this.isGrouped = isGrouped;
    this.render();
    this.remember();
  }

  /** Keep search and order in the address, so that it can be reloaded and shared. */
  remember() {
    const query = new URLSearchParams();
    if (this.search) query.set("q", this.search);
    if (this.sort !== "started" || !this.isDescending) query.set("sort", (this.isDescending ? "-" : "") + this.sort);
    if (!this.isGrouped) query.set("groups", "no");
    history.replaceState(null, "", `#/${query.size ? `?${query}` : ""}`);
  }

  showMore() {
    this.limit += PAGE;
    this.render();
  }

  select(names, isWanted) {
    for (const name of names) this.selected[isWanted ? "add" : "delete"](name);
    this.render();
  }

  fold(key) {
    this.open[this.open.has(key) ? "delete" : "add"](key);
    this.render();
  }

  /** `/` goes to the search; arrows move through the lines, right and left unfold and fold groups. */
  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const isTyping = event.target.matches("input[type=search], input[type=text], select, textarea");
    if (event.key === "/" && !isTyping) {
      event.preventDefault();
      this.searchBox.focus();
    } else if (event.key === "Escape" && event.target === this.searchBox) {
      this.searchBox.value = "";
      this.setSearch();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (isTyping && event.key === "ArrowUp") return;
      this.move(event, event.key === "ArrowDown" ? 1 : -1);
    } else if (["ArrowRight", "ArrowLeft"].includes(event.key) && event.target.matches("button.row-link")) {
      if ((event.target.getAttribute("aria-expanded") === "true") !== (event.key === "ArrowRight")) event.target.click();
    }
  }

  move(event, way) {
    const links = [...this.body.querySelectorAll(".row-link")];
    const here = links.findIndex((link) => link.closest("tr").contains(document.activeElement));
    const next = links[here === -1 && way === -1 ? -1 : here + way];
    if (next) next.focus();
    else if (here === 0) this.searchBox.focus();
    else return;
    event.preventDefault();
  }
}
