// SPDX-License-Identifier: Apache-2.0
// What a tool such as nsys is to NVTX: a library named by NVTX_INJECTION64_PATH. It writes what it hears to the file
// $NVTX_HEARD, a line each. Only what it needs of NVTX's interface for tools is declared here (version 3,
// nvtxDetail/nvtxTypes.h).

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

enum { CALLBACKS = 1, CORE2 = 5 };  // an export table, a module of it
enum { PUSH = 4, POP = 5, NAME_CATEGORY = 8, REGISTER_STRING = 10, CREATE_DOMAIN = 12 };  // its functions
enum { REGISTERED = 3 };                                                                  // a type of messages

struct ExportTable {
    size_t size;
    int (*functions)(int module, void**** table, unsigned* n);
};

struct Attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t colour_type;
    uint32_t colour;
    int32_t payload_type, reserved;
    uint64_t payload;
    int32_t message_type;
    uintptr_t message;
};

FILE* heard = nullptr;
std::vector<std::string> domains = {"default"}, strings = {""};

uintptr_t create_domain(const char* name) {
    domains.emplace_back(name);
    return domains.size() - 1;
}

uintptr_t register_string(uintptr_t, const char* text) {
    strings.emplace_back(text);
    return strings.size() - 1;
}

void name_category(uintptr_t domain, uint32_t number, const char* name) {
    std::fprintf(heard, "category %s %u %s\n", domains[domain].c_str(), number, name);
}

int push(uintptr_t domain, const Attributes* a) {
    const char* text = a->message_type == REGISTERED ? strings[a->message].c_str() : (const char*)a->message;
    std::fprintf(heard, "push %s %s %08X %u\n", domains[domain].c_str(), text, a->colour, a->category);
    return std::fflush(heard);
}

int pop(uintptr_t domain) {
    std::fprintf(heard, "pop %s\n", domains[domain].c_str());
    return std::fflush(heard);
}

}  // namespace

extern "C" int InitializeInjectionNvtx2(const void* (*table)(uint32_t)) {
    if (heard == nullptr)
        heard = std::fopen(std::getenv("NVTX_HEARD"), "w");  // every library that has NVTX in it calls here
    void*** slots = nullptr;
    unsigned n = 0;
    static_cast<const ExportTable*>(table(CALLBACKS))->functions(CORE2, &slots, &n);
    *slots[CREATE_DOMAIN] = (void*)create_domain;
    *slots[REGISTER_STRING] = (void*)register_string;
    *slots[NAME_CATEGORY] = (void*)name_category;
    *slots[PUSH] = (void*)push;
    *slots[POP] = (void*)pop;
    return heard != nullptr;
}
