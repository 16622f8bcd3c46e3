# SPDX-License-Identifier: GPL-2.0-only
# Thin: what takes more than a line is a script, so that it can be read and checked by itself.

PREFIX ?= /usr/local
SUITE  ?= trixie
# What `build` and `deb` build for: amd64 or arm64. Not from the environment, where the kernel's own ARCH may be.
ARCH    = amd64
export TARN_ARCH = $(ARCH)

.PHONY: help setup build deb demo test test-all test-debug tables lint modules vmlinux install uninstall clean

help: ## say what there is (the default)
	@echo 'tarn: keeps the network latency of a Linux host still'
	@echo
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1@\2/p' Makefile | column -t -s @ 2>/dev/null \
	    || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1: \2/p' Makefile
	@echo
	@echo 'A newcomer wants `make demo`. README.md tells the rest.'

setup: ## install what is missing on this machine (Debian 12+, Ubuntu 24.04)
	@scripts/setup

build: setup ## build the release binary (ARCH=arm64: for arm64)
	@scripts/build

deb: ## build a Debian package, for apt to install (ARCH)
	@scripts/setup --deb
	@scripts/build
	@scripts/deb

demo: ## from nothing to tables and report.html, in one go
	@scripts/demo

test: ## format, lints, unit tests, the lab: an hour or more
	@scripts/test

test-all: ## everything, on every kernel, at full length, and on a debug kernel
	@scripts/test --all

test-debug: ## the kernel modules on a kernel with KASAN, lockdep and kmemleak
	@scripts/test-debug

tables: ## write the READMEs' tables of figures from what `make test` measured
	@scripts/tables

lint: ## format and lints only
	@scripts/setup --tests
	@scripts/lint

modules: ## build the stages' kernel modules for the running kernel
	@scripts/modules

vmlinux: ## write the kernel types for BPF programs anew, from Debian kernels
	@scripts/vmlinux-header $(SUITE)

install: ## install what `make build` built (DESTDIR, PREFIX)
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install

uninstall: ## remove what install installed; /etc/tarn stays
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install --remove

clean: ## remove what was built here (images stay in ~/.cache/tarn)
	rm -rf target results report.html
