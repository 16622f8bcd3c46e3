/* SPDX-License-Identifier: GPL-2.0 */
/* The few things of the kernel that core.c and memory.c use, for user space: see plain.h. */
#ifndef TARN_REASSEMBLY_PLAIN_USER_H
#define TARN_REASSEMBLY_PLAIN_USER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef uint8_t u8;
typedef uint16_t u16;
typedef uint32_t u32;
typedef uint64_t u64;
typedef int32_t s32;

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define READ_ONCE(x) (*(const volatile __typeof__(x) *)&(x))
#define WRITE_ONCE(x, value) (*(volatile __typeof__(x) *)&(x) = (value))
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))
#define ARRAY_SIZE(array) (sizeof(array) / sizeof((array)[0]))
#define min(a, b) ((a) < (b) ? (a) : (b))
#define container_of(pointer, type, member) ((type *)((char *)(pointer) - offsetof(type, member)))

/* The tests make allocations fail: the next `plain_allocations_left` succeed. Negative: all do. */
extern long plain_allocations_left;

static inline void *plain_zalloc(size_t size)
{
	if (!plain_allocations_left)
		return NULL;
	if (plain_allocations_left > 0)
		plain_allocations_left--;
	return calloc(1, size);
}

#define plain_free(pointer) free(pointer)

typedef struct {
	long value;
} atomic_long_t;

#define atomic_long_read(a) ((a)->value)
#define atomic_long_add(n, a) ((void)((a)->value += (n)))
#define atomic_long_add_return(n, a) ((a)->value += (n))

struct list_head {
	struct list_head *next, *prev;
};

#define INIT_LIST_HEAD(list) ((list)->next = (list)->prev = (list))
#define list_empty(list) ((list)->next == (list))
#define list_entry container_of
#define list_first_entry(list, type, member) list_entry((list)->next, type, member)
#define list_first_entry_or_null(list, type, member) \
	(list_empty(list) ? NULL : list_first_entry(list, type, member))
#define list_for_each_entry(position, list, member) \
	for ((position) = list_first_entry(list, __typeof__(*(position)), member); &(position)->member != (list); \
	     (position) = list_entry((position)->member.next, __typeof__(*(position)), member))

static inline void list_add_tail(struct list_head *entry, struct list_head *list)
{
	entry->prev = list->prev;
	entry->next = list;
	list->prev->next = entry;
	list->prev = entry;
}

static inline void list_del_init(struct list_head *entry)
{
	entry->prev->next = entry->next;
	entry->next->prev = entry->prev;
	INIT_LIST_HEAD(entry);
}

#define list_del list_del_init

#endif
