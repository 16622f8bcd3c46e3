/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * What the libelf.a of elfutils 0.192 calls and does not contain (Debian 13 has it; repaired in 0.193, see
 * https://sourceware.org/bugzilla/show_bug.cgi?id=32293): a search tree, which is the C library's with a lock. A tree
 * belongs to one Elf handle, and libbpf uses a handle on one thread only, so the lock is left alone.
 *
 * scripts/setup compiles this and puts it beside the library's own objects.
 */
#define _GNU_SOURCE
#include <search.h>
#include <stddef.h>

/* Begins as libelf's structure of that name does: the root, then the lock. */
struct search_tree {
	void *root;
};

typedef int compare_nodes(const void *one, const void *other);

void eu_search_tree_init(struct search_tree *tree);
void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *node));
void *eu_tsearch(const void *key, struct search_tree *tree, compare_nodes *compare);
void *eu_tdelete(const void *key, struct search_tree *tree, compare_nodes *compare);

void eu_search_tree_init(struct search_tree *tree)
{
	tree->root = NULL;
}

void eu_search_tree_fini(struct search_tree *tree, void (*free_node)(void *node))
{
	tdestroy(tree->root, free_node);
	tree->root = NULL;
}

void *eu_tsearch(const void *key, struct search_tree *tree, compare_nodes *compare)
{
	return tsearch(key, &tree->root, compare);
}

void *eu_tdelete(const void *key, struct search_tree *tree, compare_nodes *compare)
{
	return tdelete(key, &tree->root, compare);
}
