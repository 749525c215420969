# libgpusnap-cuda.so: the gpu_*.c files for CUDA, and the kernels. nvcc is called as it is, because a
# CUDA language in CMake would want options of its own for every target.
list(GET GPUSNAP_CUDA_ARCHITECTURES -1 last)
set(GPUSNAP_CUDA_CODE -gencode arch=compute_${last},code=compute_${last})
foreach(architecture IN LISTS GPUSNAP_CUDA_ARCHITECTURES)
	list(APPEND GPUSNAP_CUDA_CODE -gencode arch=compute_${architecture},code=sm_${architecture})
endforeach()

# No contraction and nothing of fast math: the kernels promise the host's bits (arithmetic.md).
set(GPUSNAP_CUDA_CODE ${GPUSNAP_CUDA_CODE} PARENT_SCOPE)
set(cuda_object ${CMAKE_CURRENT_BINARY_DIR}/gpu_kernels.cuda.o)
add_custom_command(OUTPUT ${cuda_object}
	COMMAND ${CUDAToolkit_NVCC_EXECUTABLE} -std=c++17 -O3 -fmad=false -DGSN_VENDOR_CUDA
		${GPUSNAP_CUDA_CODE}
		-Xcompiler -fPIC,-fvisibility=hidden,-Wall
		-I${PROJECT_SOURCE_DIR} -I${PROJECT_SOURCE_DIR}/formats/include
		-I${PROJECT_SOURCE_DIR}/kernels/include
		-MD -MF ${cuda_object}.d -MT ${cuda_object}
		-c ${CMAKE_CURRENT_SOURCE_DIR}/gpu_kernels.cu -o ${cuda_object}
	DEPENDS gpu_kernels.cu DEPFILE ${cuda_object}.d
	COMMENT "Building CUDA object kernels/gpu_kernels.cu" VERBATIM)

add_library(gpusnap_cuda MODULE ${GPUSNAP_GPU_SOURCES} ${cuda_object})
set_target_properties(gpusnap_cuda PROPERTIES
	OUTPUT_NAME gpusnap-cuda LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR})
target_compile_definitions(gpusnap_cuda PRIVATE GSN_VENDOR_CUDA)
target_include_directories(gpusnap_cuda PRIVATE ${PROJECT_SOURCE_DIR})
target_include_directories(gpusnap_cuda SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
# nvcc's launch stubs guard their statics with the C++ runtime's locks; no more of it is needed.
target_link_libraries(gpusnap_cuda PRIVATE gpusnap_flags gpusnap_static CUDA::cudart_static
	-Wl,-Bstatic -lstdc++ -Wl,-Bdynamic)
target_link_options(gpusnap_cuda PRIVATE -Wl,--as-needed -Wl,--no-undefined
	-Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/device_module.map)
set_property(TARGET gpusnap_cuda APPEND PROPERTY
	LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/device_module.map)
