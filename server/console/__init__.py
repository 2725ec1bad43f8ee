"""The console: pages in a browser, and the same as JSON, for any Kafka. A process of its own, `barnabas console`.

| file | what |
| --- | --- |
| `routes.py` | the table of pages |
| `pages/` | one page, one file: what is asked of the cluster, and what is changed |
| `search/` | records: where to begin, which ones, how they are shown |
| `avro/` | which schema a key or value is decoded by, from where, in which process |
| `desk.py`, `history.py`, `rates.py` | what was asked a moment ago; the lag of groups in the last hour; rates |
| `openapi.py` | the table of pages for machines |
| `doors.py`, `bearer.py` | how visitors get in; what a token of theirs says |
| `web/` | everything between a page and HTTP: visitors, forms, guards, templates, the audit |
| `app.py`, `front.py`, `serving.py` | Starlette and Hypercorn, and nothing else knows them; how much at a time |
| `templates/`, `static/` | HTML, the style sheet, scripts: no build step, nothing from another host |

Not obvious:

- A page is a function from a `Visit` to a `View`: a template and data that JSON has a word for. The page is the
  template over the data, `….json` is the data itself, so nothing is in one and not in the other.
- The last word of a path is the page's, never a name: `/topics/orders.json/records.json`. Names are written by
  `web/segments.py`.
- A page without JavaScript is whole. Scripts add what moves: the live tail, times in the reader's zone.
- Everything from the cluster is data of strangers: names, keys, values, headers, client ids. Templates escape; no
  `|safe`, no markup from Python but `<time>`. The content security policy allows neither scripts nor styles in a page.
- A change is a POST with the visitor's token. It is asked of the cluster as whoever the client is, so access control is
  the cluster's, and it leaves a line in the log (`web/audit.py`), whatever came of it.
- Avro of strangers is decoded in a process of its own: it can fill memory, hang or crash whoever decodes it.
- Answers are bounded by records and bytes, and say what was not looked at and how to go on.
- No second way to a broker: nothing here knows our broker.
"""
