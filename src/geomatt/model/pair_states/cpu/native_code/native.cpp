// Energies, forces and gradients of one float32 network on a CPU: the sweeps of `dense`, tile by tile.
//
// Torch makes every product for all pairs before it begins the next, and what they exchange passes through
// memory, with a call for each. Here a tile of pairs goes through a whole round at one go.

#include "gradient.hpp"

// Structures side by side where there are enough of them for all threads, else one by one with its tiles side
// by side. What a structure needs is in a space of its own; if nothing is kept, structures share those of the
// threads.
template <class F> static void each_structure(const Program& p, F work) {
    const long size = Structure(p, 0, nullptr).size;
    auto alone = [](int count, auto task) { for (int k = 0; k < count; ++k) task(k); };
    auto together = [&](int count, auto task) { parallel(p.threads, count, task); };
    if (p.structures < p.threads) {
        for (int b = 0; b < p.structures; ++b) work(Structure(p, b, p.space + (p.keep ? b : 0) * size), together);
        return;
    }
    const int spaces = p.keep ? p.structures : std::min(p.threads, p.structures);
    parallel(p.threads, spaces, [&](int k) {
        for (int b = k; b < p.structures; b += spaces) work(Structure(p, b, p.space + k * size), alone);
    });
}

extern "C" {
// Numbers in the space of one structure, and in the packed weights.
int64_t geomatt_space(const Program* p) { return Structure(*p, 0, nullptr).size; }
int64_t geomatt_packed(const Program* p) { return Panels(*p).size(p->channels); }

void geomatt_pack(const Program* p) {
    const Panels panels(*p);
    parallel(p->threads, p->rounds + 1, [&](int t) {
        t < p->rounds ? panels.fill_round(*p, t) : panels.fill_readout(*p);
    });
}

void geomatt_evaluate(const Program* p) {
    each_structure(*p, [](const Structure& one, auto run) { one.evaluate(run); });
}

// After an evaluation of which all was kept.
void geomatt_gradient(const Program* p) {
    each_structure(*p, [](const Structure& one, auto run) { one.differentiate(run); });
    const long size = Structure(*p, 0, nullptr).size;
    std::vector<Structure> all;
    for (int b = 0; b < p->structures; ++b) all.emplace_back(*p, b, p->space + b * size);
    Gradient(*p, all).run();
}
}
