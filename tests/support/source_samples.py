"""Small sources in each language with a grammar, as trees in memory."""

from collections.abc import Mapping

from app.core.patch import Patch
from app.verify.sources.analysis import SourceAnalysis
from tests.support.memory_tree import MemoryTree
from tests.support.sandbox_projects import patch_of


def analysis_of(base: Mapping[str, str], changes: Mapping[str, str | bytes | None]) -> SourceAnalysis:
    """Of a patch with these changes; None deletes a file."""
    tree = MemoryTree({path: content.encode() for path, content in base.items()})
    return SourceAnalysis(tree, patch_of(changes))


def contents(patch: Patch | None) -> dict[str, str]:
    assert patch is not None
    return {change.path: (change.content or b"").decode() for change in patch.changes}


PYTHON = '''"""Totals."""
import os


class Basket:
    """Things."""

    def total(self, prices):
        """Add them up."""
        total = 0  # start
        for price in prices:
            total += price
        return total
'''


SCRIPT = """'use strict';
// totals
export function total(prices) {
  let sum = 0; /* start */
  for (const price of prices) {
    sum += price;
  }
  return `sum ${sum}  // no comment`;
}
"""


GO = """//go:build linux

// Package total adds.
package total

import "fmt"

// Total adds.
func Total(prices []int) string {
	sum := 0 // start
	for _, price := range prices {
		sum += price // add
	}
	return fmt.Sprint(sum)
}
"""


RUST = """//! Totals.

/// Adds.
pub fn total(prices: &[i32]) -> i32 {
    // start
    let mut sum = 0;
    for price in prices {
        sum += price;
    }
    sum
}

#[cfg(test)]
mod tests {
    #[test]
    fn adds() {
        assert_eq!(super::total(&[1]), 1);
    }
}
"""


JAVA = """package a;

/** Totals. */
class Basket {
    int total(int[] prices) {
        int sum = 0; // start
        for (int price : prices) {
            sum += price;
        }
        return sum;
    }
}
"""


RUBY = """# frozen_string_literal: true

# Totals.
class Basket
  def total(prices)
    sum = 0 # start
    prices.each { |price| sum += price }
    text = <<~TEXT
      # no comment
    TEXT
    text + sum.to_s
  end
end
"""


C = """#include <stdio.h>
#define LIMIT 3 /* at most */
/* adds */
int total(int *prices) {
    int sum = 0; /* start */
    for (int i = 0; i < LIMIT; i++) {
        sum += prices[i];
    }
    return sum;
}
"""


FILES = {
    "a.py": PYTHON,
    "a.js": SCRIPT,
    "a.ts": SCRIPT.replace("(prices)", "(prices: number[]): string"),
    "a.go": GO,
    "a.rs": RUST,
    "A.java": JAVA,
    "a.rb": RUBY,
    "a.c": C,
}
