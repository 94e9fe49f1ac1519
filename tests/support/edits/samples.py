"""Small files of other languages, each with what makes edits of it go wrong: tabs, quotes, repeated lines, CRLF."""

from tests.support.edits.corpus import Source

_GO = """package basket

import (
	"errors"
	"fmt"
)

// Item is one line of an order.
type Item struct {
	Name  string
	Cents int
	Count int
}

// Total returns the sum of all items, in cents.
func Total(items []Item) (int, error) {
	total := 0
	for _, item := range items {
		if item.Count < 0 {
			return 0, errors.New("negative count")
		}
		total += item.Cents * item.Count
	}
	return total, nil
}

// Names lists what was ordered.
func Names(items []Item) []string {
	names := make([]string, 0, len(items))
	for _, item := range items {
		if item.Count == 0 {
			continue
		}
		names = append(names, fmt.Sprintf("%d x %s", item.Count, item.Name))
	}
	return names
}
"""
_C = """#include <stdio.h>
#include <stdlib.h>

#define LARGEST 128

struct node {
    int value;
    struct node *next;
};

static struct node *push(struct node *head, int value)
{
    struct node *made = malloc(sizeof *made);
    if (made == NULL) {
        return head;
    }
    made->value = value;
    made->next = head;
    return made;
}

static int sum(const struct node *head)
{
    int total = 0;
    while (head != NULL) {
        total += head->value;
        head = head->next;
    }
    return total;
}

int main(void)
{
    struct node *list = NULL;
    for (int i = 0; i < LARGEST; i++) {
        list = push(list, i);
    }
    printf("the sum is %d\\n", sum(list));
    return 0;
}
"""
_JAVASCRIPT = """'use strict';

const { readFile } = require('node:fs/promises');

/** Counts the words of a text, "quoted ones" too. */
function countWords(text) {
  const counts = new Map();
  for (const word of text.toLowerCase().split(/\\W+/)) {
    if (!word) {
      continue;
    }
    counts.set(word, (counts.get(word) ?? 0) + 1);
  }
  return counts;
}

class Report {
  constructor(title, counts) {
    this.title = title;
    this.counts = counts;
  }

  render() {
    const lines = [`# ${this.title}`, ''];
    for (const [word, count] of this.counts) {
      lines.push(`- ${word}: ${count}`);
    }
    return lines.join('\\n');
  }
}

async function main(path) {
  const text = await readFile(path, 'utf8');
  const report = new Report('Words', countWords(text));
  console.log(report.render());
}

module.exports = { countWords, Report, main };
"""
_MARKDOWN = """# The tool's guide

It's a small tool, and there isn't much to know. "Start" is a good first word.

## Install

1. Get the package:

   ```sh
   make install
   ```

2. See that it works:

   ```sh
   tool --version
   ```

## Use

| Command | Does |
|---------|------|
| `start` | begins the day's work |
| `stop`  | ends it, and says what was done |
| `undo`  | takes the last thing back |

- A list item that goes on
  in a second line.
- Another item, with a [link](https://example.com/guide).

Don't forget: what isn't said isn't done.
"""
SAMPLES = (
    Source("basket.go", _GO),
    Source("list.c", _C),
    Source("words.js", _JAVASCRIPT),
    Source("guide.md", _MARKDOWN),
    Source("list-crlf.c", _C.replace("\n", "\r\n")),
    Source("guide-crlf.md", _MARKDOWN.replace("\n", "\r\n")),
)
