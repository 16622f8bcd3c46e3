// SPDX-License-Identifier: GPL-2.0
/* See memory.h. */
#include "memory.h"

/* Indices of `ages`. */
enum { KNOWN, STRANGERS };

void memory_shard_init(struct memory *memory, u32 index)
{
	struct memory_shard *shard = memory->shards[index];

	u32 i;

	for (i = 0; i < 4; i++)
		INIT_LIST_HEAD(&shard->ages[i / 2][i % 2]);
	INIT_LIST_HEAD(&shard->over);
	memory->oldest[KNOWN][index] = MEMORY_NONE;
	memory->oldest[STRANGERS][index] = MEMORY_NONE;
	memory->largest[index] = 0;
}

static bool is_same(const struct memory_address *a, const struct memory_address *b)
{
	return a->address == b->address && a->family == b->family;
}

struct memory_source *memory_find(const struct memory_shard *shard, const struct memory_address *address, u32 hash)
{
	struct memory_source *source = shard->sources[hash % MEMORY_SOURCES];

	while (source && !is_same(&source->address, address))
		source = source->next;
	return source;
}

/* Sets are chosen by other bits than buckets are. */
static struct memory_remembered *set_of(struct memory_shard *shard, u32 hash)
{
	return shard->remembered[hash / MEMORY_SOURCES % MEMORY_SETS];
}

void memory_add_source(struct memory_shard *shard, struct memory_source *source)
{
	struct memory_remembered *set = set_of(shard, source->hash);
	u32 i;

	INIT_LIST_HEAD(&source->held);
	INIT_LIST_HEAD(&source->over);
	/* The first one: a place that was never used has the tag 0, which is some source's hash, too. */
	for (i = 0; i < MEMORY_WAYS; i++) {
		if (set[i].tag != source->hash)
			continue;
		source->known_until = set[i].until;
		break;
	}
	source->next = shard->sources[source->hash % MEMORY_SOURCES];
	shard->sources[source->hash % MEMORY_SOURCES] = source;
	shard->source_count++;
}

static void remove_source(struct memory_shard *shard, struct memory_source *source)
{
	struct memory_source **place = &shard->sources[source->hash % MEMORY_SOURCES];

	while (*place != source)
		place = &(*place)->next;
	*place = source->next;
	shard->source_count--;
}

/* At most once a second for a source: the set's oldest makes room. */
void memory_completed(struct memory_shard *shard, struct memory_source *source, u32 now)
{
	struct memory_remembered *set = set_of(shard, source->hash), *place = &set[0];
	u32 i;

	if (source->known_until == now + MEMORY_REMEMBERED)
		return;
	source->known_until = now + MEMORY_REMEMBERED;
	for (i = 0; i < MEMORY_WAYS; i++) {
		if (set[i].tag == source->hash) {
			place = &set[i];
			break;
		}
		if ((s32)(set[i].until - place->until) < 0)
			place = &set[i];
	}
	place->tag = source->hash;
	place->until = source->known_until;
}

/* The oldest entry of both families. */
static struct memory_entry *oldest_entry(struct memory_shard *shard, bool is_stranger)
{
	struct memory_entry *first = memory_oldest(shard, is_stranger, false);
	struct memory_entry *second = memory_oldest(shard, is_stranger, true);

	return !first || (second && second->born < first->born) ? second : first;
}

static void hint_age(struct memory *memory, u32 index, bool is_stranger)
{
	struct memory_entry *oldest = oldest_entry(memory->shards[index], is_stranger);

	WRITE_ONCE(memory->oldest[is_stranger][index], oldest ? oldest->born : MEMORY_NONE);
}

void memory_begin(struct memory *memory, u32 index, struct memory_entry *entry, struct memory_source *source, u64 born, u32 now)
{
	struct memory_shard *shard = memory->shards[index];
	struct list_head *ages;

	entry->source = source;
	entry->born = born;
	entry->begun = source->begun++;
	entry->bytes = 0;
	entry->is_stranger = !memory_is_known(source, now);
	entry->is_second = source->address.family == MEMORY_SECOND;
	ages = &shard->ages[entry->is_stranger][entry->is_second];
	list_add_tail(&entry->by_age, ages);
	list_add_tail(&entry->by_source, &source->held);
	source->datagrams++;
	shard->datagrams++;
	if (ages->next == &entry->by_age)
		hint_age(memory, index, entry->is_stranger);
}

bool memory_end(struct memory *memory, u32 index, struct memory_entry *entry)
{
	struct memory_shard *shard = memory->shards[index];
	struct memory_source *source = entry->source;
	bool was_first = memory_oldest(shard, entry->is_stranger, entry->is_second) == entry;

	memory_charge(memory, index, entry, -(s32)entry->bytes);
	list_del(&entry->by_age);
	list_del(&entry->by_source);
	shard->datagrams--;
	if (was_first)
		hint_age(memory, index, entry->is_stranger);
	if (--source->datagrams)
		return false;
	remove_source(shard, source);
	return true;
}

/* So few sources can be above their share at once that all of a shard are looked at. */
static struct memory_source *largest_of(const struct memory_shard *shard)
{
	struct memory_source *largest = NULL, *source;

	list_for_each_entry(source, &shard->over, over)
		if (!largest || source->bytes > largest->bytes)
			largest = source;
	return largest;
}

void memory_rank(struct memory *memory, u32 index, struct memory_source *source)
{
	struct memory_shard *shard = memory->shards[index];
	bool is_over = source->bytes > READ_ONCE(memory->share);
	struct memory_source *largest;

	if (is_over && list_empty(&source->over))
		list_add_tail(&source->over, &shard->over);
	else if (!is_over && !list_empty(&source->over))
		list_del_init(&source->over);
	largest = largest_of(shard);
	WRITE_ONCE(memory->largest[index], largest ? largest->bytes : 0);
}

void memory_rank_all(struct memory *memory, u32 index)
{
	struct memory_source *source;
	u32 i;

	for (i = 0; i < MEMORY_SOURCES; i++)
		for (source = memory->shards[index]->sources[i]; source; source = source->next)
			memory_rank(memory, index, source);
}

/* The shard whose hint is lowest. */
static bool oldest_of(const u64 *hints, u32 *index, u64 *age)
{
	bool found = false;
	u32 i;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		u64 hint = READ_ONCE(hints[i]);

		if (hint >= *age)
			continue;
		*age = hint;
		*index = i;
		found = true;
	}
	return found;
}

bool memory_choose(const struct memory *memory, struct memory_choice *choice)
{
	u64 most = 0, age = MEMORY_NONE;
	bool found;
	u32 i;

	for (i = 0; i < MEMORY_SHARDS; i++) {
		u64 bytes = READ_ONCE(memory->largest[i]);

		if (bytes <= most)
			continue;
		most = bytes;
		choice->shard = i;
	}
	choice->reason = BY_SHARE;
	if (most)
		return true;
	choice->reason = BY_STRANGER;
	found = oldest_of(memory->oldest[STRANGERS], &choice->shard, &age);
	if (found && (u64)atomic_long_read(&memory->strangers) > READ_ONCE(memory->ceiling) / 4)
		return true;
	choice->reason = BY_AGE;
	return oldest_of(memory->oldest[KNOWN], &choice->shard, &age) || found;
}

struct memory_entry *memory_victim(const struct memory *memory, const struct memory_choice *choice)
{
	struct memory_shard *shard = memory->shards[choice->shard];
	struct memory_entry *known, *stranger;
	struct memory_source *source;

	if (choice->reason == BY_SHARE) {
		source = largest_of(shard);
		return source ? list_first_entry(&source->held, struct memory_entry, by_source) : NULL;
	}
	stranger = oldest_entry(shard, STRANGERS);
	if (choice->reason == BY_STRANGER)
		return stranger;
	known = oldest_entry(shard, KNOWN);
	return !known || (stranger && stranger->born < known->born) ? stranger : known;
}

void memory_failed(struct memory_shard *shard, const struct memory_address *address)
{
	struct memory_watched *least = &shard->watched[0];
	u32 i;

	for (i = 0; i < MEMORY_WATCHED; i++) {
		struct memory_watched *watched = &shard->watched[i];

		if (is_same(&watched->address, address)) {
			watched->failed++;
			return;
		}
		if (watched->failed < least->failed)
			least = watched;
	}
	least->address = *address;
	least->failed++;
}
