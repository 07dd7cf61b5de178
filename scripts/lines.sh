#!/usr/bin/env bash
# Prints how much Rust (each file up to its first `#[cfg(test)]`, without tests and examples) and how many words of
# documents there are.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

for folder in src crates/* tool/*; do
    git ls-files "$folder/*.rs" | grep -vE '/(tests|examples)/|/tests\.rs$' | xargs awk -v folder="$folder" '
        FNR == 1 { tested = 0; files++ }
        /^ *#\[cfg\(test\)\]/ { tested = 1 }
        !tested { lines++; if (++of[FILENAME] > of[largest]) largest = FILENAME }
        END { printf "%s: %d lines in %d files, the largest %s (%d)\n", folder, lines, files, largest, of[largest] }'
done
echo "documents: $(git ls-files '*.md' | xargs cat | wc -w) words in $(git ls-files '*.md' | wc -l) files"
