##@ Operate

.PHONY: upgrade audit pack backup restore
upgrade: $(LAYER)/tools ##+ After git pull: carry over settings and versions, build anew what no longer fits
	$(RUN) --any-settings extensions.upkeep.commands.upgrade

audit: $(LAYER)/check ##+ Ask OSV, the database of vulnerabilities, for known flaws of every package, on the host and in images
	$(RUN) extensions.upkeep.commands.audit

pack: $(LAYER)/tools ##+ Write all that a machine without internet needs to a folder: TO=folder
	$(RUN) extensions.upkeep.commands.pack

backup: $(LAYER)/tools ##+ Save versions, history, recipes and settings in a file: TO=file
	$(RUN) extensions.upkeep.commands.backup

restore: $(LAYER)/tools ##+ Go back to what such a file holds, in place of what is here: FROM=file
	$(RUN) --any-layout extensions.upkeep.commands.restore
