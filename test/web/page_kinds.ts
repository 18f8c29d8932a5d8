/** Pages as the generators and sites of their kind write them, with what their readers come for and what is around it. */
export interface PageOfKind {
  readonly html: string;
  /** Texts that must come out, in this order */
  readonly has: readonly string[];
  readonly lacks: readonly string[];
}

const LONG = "A gate hangs on two posts, and a door in a wall is a postern. ".repeat(5);
const text = (name: string, times = 2) =>
  `<p>${`This is what people came to read about ${name}, and it goes on for a while. `.repeat(times)}</p>`;
const said = (name: string) => `came to read about ${name},`;
/** Sections whose ids and titles are words by which other pages mark their surroundings. */
const TITLES = ["Cookies", "Comments", "Pagination", "Full Text Search", "Sharing", "Related", "The Toolbar", "Menu"];
const slug = (title: string) => title.toLowerCase().replaceAll(" ", "-");
const sections = (write: (title: string, id: string) => string) =>
  TITLES.map((title) => write(title, slug(title))).join("\n");
const TEXTS = TITLES.map(said);

export const PAGES_OF_KINDS: Readonly<Record<string, PageOfKind>> = {
  "Sphinx": {
    html: `<body><div class="related" role="navigation"><h3>Navigation</h3><a href="/i">index of all</a></div>
      <div class="document"><div class="documentwrapper"><div class="bodywrapper"><div class="body" role="main">
      <section id="web"><h1><a class="toc-backref" href="#id1" role="doc-backlink">Web framework</a><a class="headerlink" href="#web">¶</a></h1>
      <p>${LONG}</p><aside class="footnote brackets" id="f1" role="doc-footnote"><p>${
      said("footnotes")
    } in a footnote</p></aside>
      ${
      sections((title, id) =>
        `<section id="${id}"><span id="index-0"></span><h2>3.4. ${title}<a class="headerlink" href="#${id}">¶</a></h2>${
          text(title)
        }</section>`
      )
    }</section></div></div></div>
      <div class="sphinxsidebar" role="navigation"><div class="sphinxsidebarwrapper"><h3>Table of everything</h3></div></div></div>
      <div class="footer" role="contentinfo">&copy; nobody at all.</div></body>`,
    has: ["# [Web framework]", said("footnotes"), ...TITLES.flatMap((title) => [`${title}\n`, said(title)])],
    lacks: ["index of all", "Table of everything", "nobody at all", "¶"],
  },
  "docutils": {
    html: `<body><div class="document" id="x"><h1 class="title">Notes</h1><div class="contents topic" id="contents">
      <p class="topic-title">Contents</p></div>${
      sections((title, id) =>
        `<div class="section" id="${id}"><h2><a class="toc-backref" href="#toc-entry-1">${title}</a></h2>${
          text(title)
        }</div>`
      )
    }</div></body>`,
    has: TITLES.flatMap((title) => [`## [${title}]`, said(title)]),
    lacks: [],
  },
  "rustdoc": {
    html:
      `<body class="rustdoc mod"><nav class="sidebar"><h2>Crate gate in the side</h2></nav><main><div class="width-limiter">
      <section id="main-content" class="content"><div class="main-heading"><h1>Crate <span>gate</span>
      <button id="copy-path" title="Copy">Copy item path</button></h1></div>
      <details class="toggle top-doc" open><summary class="hideme"><span>Expand description</span></summary>
      <div class="docblock"><p>${LONG}</p><h2 id="cookies"><a class="doc-anchor" href="#cookies">§</a>Cookies</h2>${
        text("Cookies")
      }
      <h2 id="search"><a class="doc-anchor" href="#search">§</a>Search</h2>${
        text("Search")
      }</div></details></section></div></main></body>`,
    has: ["# Crate gate", "## Cookies", said("Cookies"), "## Search", said("Search")],
    lacks: ["in the side", "Copy item path", "§"],
  },
  "Javadoc": {
    html:
      `<body class="class-declaration-page"><header role="banner" class="flex-header"><nav role="navigation"><div class="top-nav">Skip to it</div></nav>
      </header><main role="main"><div class="header"><h1 class="title">Class Pager</h1></div>
      <section class="class-description" id="class-description"><div class="block">${text("Pager", 4)}</div></section>
      <section class="details"><section class="method-details" id="method-detail"><h2>Method Details</h2><ul class="member-list"><li>
      <section class="detail" id="search()"><h3>search</h3><div class="block">${text("search")}</div></section></li><li>
      <section class="detail" id="print"><h3>print</h3><div class="block">${
        text("print")
      }</div><dl class="notes"><dt>Returns:</dt>
      <dd>the cookies</dd></dl></section></li></ul></section></section></main></body>`,
    has: ["# Class Pager", said("Pager"), said("search"), said("print"), "the cookies"],
    lacks: ["Skip to it"],
  },
  "TypeDoc": {
    html:
      `<body><header class="tsd-page-toolbar"><div class="tsd-toolbar-contents container"><div id="tsd-search">Search all of it</div></div></header>
      <div class="container container-main"><div class="col-content"><div class="tsd-page-title"><ul class="tsd-breadcrumb"><li><a href="..">gates</a></li></ul>
      <h1>Class Gate</h1></div><section class="tsd-panel tsd-comment"><div class="tsd-comment tsd-typography">${
        text("Gate", 4)
      }
      <div class="tsd-tag-deprecated"><h4 class="tsd-anchor-link">Deprecated</h4><p>Hang a door.</p></div></div></section>
      <section class="tsd-panel tsd-member"><h3 class="tsd-anchor-link"><span>open</span></h3><ul class="tsd-signatures"><li class="tsd-description">
      <div class="tsd-comment tsd-typography">${text("open")}</div></li></ul></section></div>
      <div class="col-sidebar"><div class="page-menu"><nav class="site-menu"><a href="x">Members of it</a></nav></div></div></div></body>`,
    has: ["# Class Gate", said("Gate"), "Hang a door.", said("open")],
    lacks: ["Search all of it", "Members of it"],
  },
  "Docusaurus": {
    html:
      `<body><nav class="navbar navbar--fixed-top"><a href="/">Gates</a></nav><div class="main-wrapper"><aside class="theme-doc-sidebar-container">
      <a href="x">All pages here</a></aside><main class="docMainContainer"><div class="row"><div class="col"><article>
      <nav class="theme-doc-breadcrumbs"><a href="/">Home sweet</a></nav><div class="tocCollapsible theme-doc-toc-mobile"><button>On this page</button></div>
      <div class="theme-doc-markdown markdown"><header><h1>Gates</h1></header><p>${LONG}</p>
      <div class="theme-admonition theme-admonition-note admonition alert alert--secondary"><div class="admonitionHeading"><span>note</span></div>
      <div class="admonitionContent"><p>${said("a note")}</p></div></div>${
        sections((title, id) =>
          `<h2 class="anchor" id="${id}">${title}<a href="#${id}" class="hash-link">​</a></h2>${text(title)}`
        )
      }</div></article><nav class="pagination-nav"><a href="n">Next of it</a></nav></div></div></main></div></body>`,
    has: ["# Gates", said("a note"), ...TEXTS],
    lacks: ["All pages here", "Home sweet", "On this page", "Next of it"],
  },
  "Starlight": {
    html:
      `<body><header><a href="/">Gates</a></header><div class="main-frame"><main><div class="sl-markdown-content"><h1>Gates</h1><p>${LONG}</p>
      <aside aria-label="Note" class="starlight-aside starlight-aside--note"><p class="starlight-aside__title">Note</p>
      <div class="starlight-aside__content"><p>${said("asides")}</p></div></aside></div></main>
      <aside class="right-sidebar-container"><a href="#x">On this page</a></aside></div></body>`,
    has: [said("asides")],
    lacks: ["On this page"],
  },
  "MkDocs": {
    html:
      `<body><header class="md-header"><nav class="md-header__inner"><a href="/">Gates</a></nav></header><div class="md-container"><main class="md-main">
      <div class="md-main__inner md-grid"><div class="md-sidebar md-sidebar--primary"><nav class="md-nav"><a href="x">All pages here</a></nav></div>
      <div class="md-content"><article class="md-content__inner md-typeset"><h1 id="gates">Gates<a class="headerlink" href="#gates">¶</a></h1><p>${LONG}</p>
      ${sections((title, id) => `<h2 id="${id}">${title}<a class="headerlink" href="#${id}">¶</a></h2>${text(title)}`)}
      <div class="tabbed-set tabbed-alternate"><input type="radio"><div class="tabbed-content"><div class="tabbed-block">${
        text("tabs")
      }</div></div></div>
      </article></div></div></main></div></body>`,
    has: [...TEXTS, said("tabs")],
    lacks: ["All pages here"],
  },
  "Doxygen": {
    html:
      `<body><div id="top"><div id="titlearea"><table><tr><td id="projectalign"><div id="projectname">Gates 1.0</div></td></tr></table></div>
      <div id="main-nav"></div></div><div id="MSearchSelectWindow"></div><div id="nav-path" class="navpath"><ul><li class="navelem"><a href="x">up there</a></li></ul></div>
      <div class="header"><div class="headertitle"><div class="title">Gate Class Reference</div></div></div><div class="contents">
      <a name="details" id="details"></a><h2 class="groupheader">Detailed Description</h2><div class="textblock">${
        text("Gate", 3)
      }</div>
      <h2 class="memtitle"><span class="permalink"><a href="#a1">◆&#160;</a></span>search()</h2><div class="memitem"><div class="memproto">
      <table class="memname"><tr><td class="memname">bool gate::search</td><td>(</td><td>)</td></tr></table></div><div class="memdoc">${
        text("search")
      }
      <div class="fragment"><div class="line">search();</div></div></div></div></div><hr class="footer"/><address class="footer"><small>Generated by it</small></address></body>`,
    has: [said("Gate"), "search()", said("search"), "```\nsearch();\n```"],
    lacks: ["up there"],
  },
  "DocBook": {
    html:
      `<body><div class="navheader"><table><tr><td><a href="p">Prev of it</a></td></tr></table></div><div class="chapter" id="TEXTSEARCH"><div class="titlepage">
      <h2 class="title">Chapter 12. Full Text Search</h2></div><div class="toc"><p><b>Table of Contents</b></p><dl class="toc"><dt><a href="a">12.1. Introduction here</a></dt></dl></div>
      ${
        sections((title, id) =>
          `<div class="sect1" id="${id}"><h2 class="title">12.1. ${title}</h2>${text(title)}</div>`
        )
      }</div>
      <div class="navfooter"><a href="n">Next of it</a></div></body>`,
    has: ["Full Text Search", ...TEXTS],
    lacks: ["Prev of it", "Introduction here", "Next of it"],
  },
  "Redoc": {
    html:
      `<body><div class="menu-content" role="navigation"><a href="#t">Side of it</a></div><div class="api-content"><section class="api-info"><h1>Gate API</h1>
      ${
        text("Gate API", 4)
      }</section><section class="api-tags"><h2>Tags</h2><div class="api-tag" id="tag/Search"><h3>Search</h3>${
        text("tags")
      }</div></section></div></body>`,
    has: [said("Gate API"), said("tags")],
    lacks: ["Side of it"],
  },
  "Bootstrap": {
    html:
      `<body><div class="navbar d-print-none"><a href="/">Site of it</a></div><div class="container"><h1>Invoice</h1>${
        text("Invoice", 6)
      }
      <div class="d-print-block"><h2>Terms</h2>${
        text("terms", 1)
      }</div><div class="accordion" id="faq"><div class="accordion-item">
      <h2 class="accordion-header"><button class="accordion-button" type="button">How do I hang it?</button></h2>
      <div class="accordion-collapse collapse"><div class="accordion-body">${text("hanging")}</div></div></div></div>
      <button class="btn">Buy it now</button></div></body>`,
    has: [said("Invoice"), said("terms"), "## How do I hang it?", said("hanging")],
    lacks: ["Site of it", "Buy it now"],
  },
  "Hacker News": {
    html:
      `<html op="item"><body><center><table id="hnmain"><tr><td bgcolor="#ff6600"><table><tr><td><span class="pagetop"><b class="hnname"><a href="news">Hacker News</a></b>
      <a href="newest">new</a></span></td></tr></table></td></tr><tr id="pagespace"></tr><tr><td><table class="fatitem"><tr class="athing submission"><td class="title">
      <span class="titleline"><a href="https://gates.example/">A gate of oak</a></span></td></tr><tr><td class="subtext"><span class="subline"><span class="score">5 points</span></span></td></tr></table><br>
      <table class="comment-tree">${
        ["one", "two", "three", "four"].map((name) =>
          `<tr class="athing comtr"><td><table><tr><td class="ind" indent="0"></td><td class="votelinks"><center><a href="vote"><div class="votearrow"></div></a></center></td>
        <td class="default"><div><span class="comhead"><a href="user" class="hnuser">ann</a></span></div><br><div class="comment"><div class="commtext c00">${
            text(name, 1)
          }</div><div class="reply"></div></div></td></tr></table></td></tr>`
        ).join("")
      }</table></td></tr><tr><td><span class="yclinks"><a href="g">Guidelines</a></span></td></tr></table></center></body></html>`,
    has: [said("one"), said("two"), said("three"), said("four")],
    lacks: [],
  },
  "Lobsters": {
    html:
      `<body><header id="nav"><a href="/">Lobsters</a></header><div id="inside"><ol class="stories list"><li class="story"><div class="story_liner">
      <div class="details"><span class="link"><a class="u-url" href="https://gates.example/">A gate of oak</a></span><span class="tags"><a class="tag" href="/t/a">wood</a></span></div></div>
      <div class="story_content"><div class="story_text">${
        text("the story", 6)
      }</div></div></li></ol><ol class="comments comments1"><li class="comments_subtree">
      <div class="comment"><div class="details"><div class="byline"><a href="/~ann">ann</a></div><div class="comment_text">${
        text("one", 1)
      }</div></div></div>
      <ol class="comments"><li class="comments_subtree"><div class="comment"><div class="comment_text">${
        text("two", 1)
      }</div></div></li></ol></li></ol></div></body>`,
    has: ["A gate of oak", said("the story"), said("one"), said("two")],
    lacks: [],
  },
  "Bugzilla": {
    html:
      `<body><div id="header"><form class="search"><input name="q"><label>Quick Search of it</label></form></div><div id="bugzilla-body" class="container"><h1>Bug 12</h1>
      <div id="comments"><table class="bz_comment_table"><tr><td><div id="c0" class="bz_comment bz_first_comment"><div class="bz_first_comment_head">Ann</div>
      <pre class="bz_comment_text">The gate sticks, ${
        said("the bug")
      } and it says so.</pre></div><div id="c1" class="bz_comment"><div class="bz_comment_head">Comment 1</div>
      <pre class="bz_comment_text">Oil it, ${
        said("oil")
      } and it moves.</pre></div></td></tr></table></div></div></body>`,
    has: ["Bug 12", said("the bug"), said("oil")],
    lacks: ["Quick Search of it"],
  },
  "Drupal": {
    html:
      `<body><div class="dialog-off-canvas-main-canvas"><header role="banner" class="site-header"><a href="/">Site of it</a></header><main role="main"><div class="region region-content">
      <article class="node node--type-forum"><h1>Gate</h1><div class="node__content">${
        text("the post", 9)
      }<section id="comments" class="comments comment-wrapper">
      <h2 class="title">Comments</h2><article class="comment js-comment"><div class="comment__content">${
        text("one", 1)
      }</div></article>
      <article class="comment js-comment"><div class="comment__content">${
        text("two", 1)
      }</div></article></section></div></article></div></main>
      <footer class="site-footer">Footer of it</footer></div></body>`,
    has: [said("the post"), said("one"), said("two")],
    lacks: ["Site of it", "Footer of it"],
  },
  "GitHub": {
    html:
      `<body><div class="position-relative header-wrapper js-header-wrapper"><header class="HeaderMktg" role="banner"><a href="/">Sign up here</a></header></div><main>
      <div id="discussion_bucket"><div class="pull-discussion-timeline js-discussion"><div class="TimelineItem js-comment-container"><div class="timeline-comment comment">
      <div class="edit-comment-hide"><task-lists><table class="d-block user-select-contain"><tbody><tr><td class="d-block comment-body markdown-body js-comment-body">${
        text("the issue", 3)
      }</td></tr></tbody></table></task-lists></div></div></div><div class="TimelineItem js-comment-container"><div class="timeline-comment comment"><div class="comment-body markdown-body">${
        text("an answer", 1)
      }</div></div></div></div><div class="Layout-sidebar"><div class="sidebar-labels discussion-sidebar-item"><a href="l">None yet at all</a></div></div></div></main></body>`,
    has: [said("the issue"), said("an answer")],
    lacks: ["Sign up here", "None yet at all"],
  },
  "Discourse": {
    html:
      `<body class="crawler"><section id="main"></section><noscript data-path="/t/gate/1"><header class="d-header"><a href="/">Forum</a></header><div id="main-outlet" class="wrap" role="main">
      <div id="topic-title"><h1><a href="/t/gate/1">A gate of oak</a></h1></div><div id="post_1" class="topic-body crawler-post"><div class="crawler-post-meta"><span class="creator">ann</span></div>
      <div class="post" itemprop="text">${
        text("the topic", 3)
      }</div></div><div id="post_2" class="topic-body crawler-post"><div class="post" itemprop="text">${
        text("a reply", 2)
      }</div></div>
      </div></noscript></body>`,
    has: ["A gate of oak", said("the topic"), said("a reply")],
    lacks: [],
  },
  "Elementor": {
    html:
      `<body class="elementor-page"><header class="elementor-location-header"><nav class="elementor-nav-menu"><a href="/">Site of it</a></nav></header>
      <div class="elementor elementor-7"><section class="elementor-section"><div class="elementor-container"><div class="elementor-column"><div class="elementor-widget-wrap">
      <div class="elementor-element elementor-widget elementor-widget-heading"><div class="elementor-widget-container"><h2>Our gates</h2></div></div>
      <div class="elementor-element elementor-widget elementor-widget-text-editor"><div class="elementor-widget-container">${
        text("gates", 3)
      }</div></div>
      <div class="elementor-element elementor-widget elementor-widget-heading"><div class="elementor-widget-container"><h2>Our doors</h2></div></div>
      <div class="elementor-element elementor-widget elementor-widget-text-editor"><div class="elementor-widget-container">${
        text("doors", 3)
      }</div></div>
      </div></div></div></section></div></body>`,
    has: ["## Our gates", said("gates"), "## Our doors", said("doors")],
    lacks: ["Site of it"],
  },
  "SiteOrigin": {
    html: `<body><div id="page"><div id="content" class="site-content"><div class="panel-layout">${
      ["gates", "doors", "walls"].map((name) =>
        `<div class="panel-grid"><div class="panel-grid-cell"><div class="so-panel widget widget_sow-editor panel-first-child panel-last-child">
        <h3 class="widget-title">Our ${name}</h3><div class="siteorigin-widget-tinymce textwidget">${
          text(name)
        }</div></div></div></div>`
      ).join("")
    }</div></div><div id="secondary" class="widget-area sidebar"><aside class="widget widget_archive"><a href="a">Archive of it</a></aside></div></div></body>`,
    has: ["### Our gates", said("gates"), said("doors"), said("walls")],
    lacks: ["Archive of it"],
  },
};
