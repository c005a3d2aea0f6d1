"""A checkpoint folder read as data: no weight is loaded, nothing of it is run except its chat template, in a sandbox.

``python -m runbook.checkpoint FOLDER`` prints what it holds and every fault that can be seen without a GPU or torch.
One module reads one subject and gives back ``faults.Fault`` whose kind begins with that subject; a check asks for the
subject, so a new kind of fault is a line in the module that can see it:

=============  ================================================  ==============
subject        module                                            check
=============  ================================================  ==============
weights        headers: each file against its own header         MODEL-002
shapes         tensors: names, shapes and types against config   MODEL-011
index          index: the index against the shards               MODEL-012
tokenizer      tokens: ids, classes, special tokens              MODEL-013
template       template: the chat template, rendered             MODEL-014
generation     generation: where an answer ends                  MODEL-015
origin         origin: who saved it, in which form               MODEL-016
hashes         hashes: revision and hash, by the hub's word      MODEL-017, 018
config         config: the file, and values that hang together   MODEL-019
=============  ================================================  ==============

``shapes`` works out which tensors a config calls for; ``files`` opens and ``sandbox`` renders what is not to be trusted.
"""
